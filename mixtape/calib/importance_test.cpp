#include "mixtape/calib/importance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TempDirectory;

class ImportanceTest : public ::testing::Test {
 protected:
  static std::unique_ptr<ModelSource> model(const std::string& name) {
    return open_model("tests/data/parity/" + name);
  }
  Imatrix gathered(const ModelSource& source, const QuantizationPlan& plan, LayerStatistics& all) {
    const Teacher teacher(source, DType::f32, false, tape_);
    const std::vector<TokenRow> rows = random_rows(8, 17, 263, 7);
    ImportanceRecord record(source.config(), plan);
    const std::uint64_t bytes = imatrix_bytes(record.imatrix);
    visit_input_statistics(teacher, plan, rows, 8, Statistics::importance, {},
                           [&](const LayerStatistics& layer) {
                             record.add(layer);
                             all.insert(layer.begin(), layer.end());
                           });
    EXPECT_EQ(imatrix_bytes(record.imatrix), bytes);  // known before
    return record.imatrix;
  }
  std::string refusal(const Imatrix& imatrix, const ModelSource& source, const QuantizationPlan& plan) {
    try {
      importance_of(imatrix, "i.gguf", source.config(), plan, Device::cpu());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::format);
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }

  Tape tape_{Device::cpu()};
  TempDirectory directory_;
};

TEST_F(ImportanceTest, WhatWasGatheredComesBackFromTheFile) {
  for (const char* name : {"llama", "llama_tied_bias_rope3", "qwen3_moe"}) {
    const auto source = model(name);
    const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
    LayerStatistics all;
    const Imatrix imatrix = gathered(*source, plan, all);
    AtomicFile file(directory_ / "i.gguf");
    write_imatrix(file, imatrix);
    const Importance found =
        importance_of(read_imatrix(directory_ / "i.gguf"), "i.gguf", source->config(), plan, Device::cpu());
    ASSERT_EQ(found.inputs.size(), all.size()) << name;
    for (const auto& [path, wanted] : all) {
      const InputStatistics& inputs = found.inputs.at(path);
      EXPECT_EQ(inputs.tokens, wanted.tokens) << path;
      ASSERT_EQ(inputs.mean_squares.shape(), wanted.mean_squares.shape()) << path;
      const auto a = inputs.mean_squares.to_vector<float>(), b = wanted.mean_squares.to_vector<float>();
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-6f * b[i]) << path;
    }
    const bool tied = source->config().tie_word_embeddings;
    EXPECT_EQ(found.unweighted.size(), tied ? 0u : 1u);  // an embedding that is only looked up
  }
}

// The fit is that of a calibration with the same importance.
TEST_F(ImportanceTest, FitsAsACalibrationDoes) {
  const auto source = model("qwen3_moe");
  const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
  LayerStatistics all;
  gathered(*source, plan, all);
  const Teacher teacher(*source, DType::f32, false, tape_);
  const std::vector<Method> methods = {least_squares()};
  const std::vector<TokenRow> rows = random_rows(8, 17, 263, 7);
  std::int64_t heard = 0;
  const Student student = fit_students(teacher, plan, methods, rows, 8, {},
                                       [&](const LayerStatistics& layer) { heard += std::ssize(layer); })
                              .front()
                              .student;
  EXPECT_EQ(heard, std::ssize(all));
  std::vector<std::string> notes;
  const TensorProvider tensors = fitted_tensors(*source, methods[0], all, DType::f32, Device::cpu(), notes);
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) continue;
    const QuantizedWeight q = tensors.quantized(m), wanted = student.parameters.quantized.at(m.path);
    EXPECT_EQ(q.codes.to_vector<std::uint32_t>(), wanted.codes.to_vector<std::uint32_t>()) << m.path;
    EXPECT_EQ(q.scales.to_vector<float>(), wanted.scales.to_vector<float>()) << m.path;
  }
}

TEST_F(ImportanceTest, WithoutCountsThereIsNoWeight) {
  const auto source = model("qwen3_moe");
  const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
  LayerStatistics all;
  Imatrix imatrix = gathered(*source, plan, all);
  WeightImportance& w = imatrix.weights.at("blk.0.attn_q.weight");
  w = {std::vector<float>(w.mean_squares.size()), {0}};
  imatrix.weights.erase("output.weight");  // llama.cpp leaves it out unless asked
  const Importance found = importance_of(imatrix, "i.gguf", source->config(), plan, Device::cpu());
  EXPECT_THAT(found.unweighted,
              ElementsAre("model.embed_tokens", "model.layers.0.self_attn.q_proj", "lm_head"));
  // The older form has one count for all experts.
  WeightImportance& experts = imatrix.weights.at("blk.0.ffn_up_exps.weight");
  experts.tokens = {7};
  const Importance older = importance_of(imatrix, "i.dat", source->config(), plan, Device::cpu());
  const InputStatistics& up = older.inputs.at("model.layers.0.mlp.switch_mlp.up_proj");
  EXPECT_EQ(std::ssize(up.tokens), up.mean_squares.shape()[0]);
}

TEST_F(ImportanceTest, RefusesImportanceOfAnotherModel) {
  const auto source = model("llama");
  const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
  LayerStatistics all;
  const Imatrix own = gathered(*source, plan, all);
  Imatrix other = own;
  other.weights.erase("blk.0.attn_q.weight");
  EXPECT_THAT(refusal(other, *source, plan),
              HasSubstr("i.gguf: is importance of another model: it has no 'blk.0.attn_q.weight'"));
  other = own;
  other.weights["blk.7.attn_q.weight"] = own.weights.at("blk.0.attn_q.weight");
  EXPECT_THAT(refusal(other, *source, plan), HasSubstr("the model has no 'blk.7.attn_q.weight'"));
  other = own;
  other.weights.at("blk.0.attn_q.weight").mean_squares.push_back(1.0f);
  EXPECT_THAT(
      refusal(other, *source, plan),
      ::testing::ContainsRegex("'blk.0.attn_q.weight' has [0-9]+ values in 1 matrices, the model has"));
  const auto moe = model("qwen3_moe");
  EXPECT_THAT(refusal(own, *moe, plan_quantization(*moe, {.params = {3, 32}})), HasSubstr("; and "));
}

}  // namespace
}  // namespace mixtape
