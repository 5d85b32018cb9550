// Students whose matrices are stored in GGUF's blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "mixtape/calib/block_codes.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/checked_plan.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/float_model.h"
#include "mixtape/calib/initialize.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/io/json_file.h"
#include "mixtape/quant/block_bytes.h"
#include "mixtape/quant/gguf_export.h"
#include "mixtape/quant/weight_codec.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

// One layer of random weights whose rows are whole blocks of 256, but for those of o_proj.
class BlockStudentTest : public ::testing::Test {
 protected:
  BlockStudentTest() {
    nlohmann::json json = read_json("tests/data/stories260k/config.json");
    for (const char* key : {"hidden_size", "intermediate_size"}) json[key] = 256;
    json["num_hidden_layers"] = 1;
    json["num_attention_heads"] = 2;
    json["num_key_value_heads"] = 1;
    json["head_dim"] = 32;
    json["torch_dtype"] = "float32";
    const ModelConfig config = ModelConfig::parse(json, "config");
    Parameters parameters = initial_parameters(config, 1, Device::cpu());
    // Larger than at the start of training, so that rounding shows.
    for (auto& [name, value] : parameters.dense) {
      if (value.shape().rank() < 2) continue;
      std::vector<float> values = value.to_vector<float>();
      for (float& v : values) v *= 4.0f;
      value = Buffer::from(Device::cpu(), value.shape(), values);
    }
    AtomicDirectory output(temp_ / "model");
    write_float_model(output, json, "tests/data/stories260k", config, parameters);
    source_ = open_model(temp_ / "model");
  }

  Calibration run(const QuantizationPlan& plan, const std::vector<Method>& methods) {
    return calibrate(*source_, plan, {rows_, rows_, rows_}, {.methods = methods, .compute = DType::f32},
                     tape_);
  }
  static DwqOptions steps(bool with_codes) {
    DwqOptions o;
    o.train.steps = 12;
    o.train.batch_size = 4;
    o.train.learning_rate = 0.002;
    o.train.code_rate = 0.02;
    o.trains_codes = with_codes;
    return o;
  }

  testing::TempDirectory temp_;
  std::unique_ptr<ModelSource> source_;
  Tape tape_{Device::cpu()};
  std::vector<TokenRow> rows_ = random_rows(8, 17, 263, 7);
};

TEST_F(BlockStudentTest, RowsThatAreNoWholeBlocksTakeLlamaCppsOtherType) {
  const QuantizationPlan plan = plan_quantization(*source_, {.params = BlockType::q4_k});
  EXPECT_EQ(plan.find("model.layers.0.self_attn.q_proj")->stored, StoredAs(BlockType::q4_k));
  EXPECT_EQ(plan.find("model.layers.0.self_attn.o_proj")->stored, StoredAs(BlockType::q5_0));
  const StorageSize size = storage_size(*source_, plan, DType::f32);
  std::int64_t bytes = 0;
  for (const PlannedModule& m : plan.modules) {
    if (!m.stored) {
      bytes += 4 * m.shape.numel();
    } else {
      bytes += m.stored->block == BlockType::q5_0 ? m.shape.numel() / 32 * 22 : m.shape.numel() / 256 * 144;
    }
  }
  EXPECT_EQ(size.bytes, bytes);
}

// Every stage: fits by weighted error, GPTQ, training of the parts, and of the codes beside them.
TEST_F(BlockStudentTest, EveryStageComesNearer) {
  for (const BlockType type : {BlockType::q2_k, BlockType::q3_k, BlockType::q4_k, BlockType::q4_0}) {
    const QuantizationPlan plan = plan_quantization(*source_, {.params = type});
    std::vector<Method> methods = fits(InitialFit::gptq);
    methods.push_back(dwq(steps(false)));
    methods.push_back(dwq(steps(true)));
    const Calibration all = run(plan, methods);
    std::vector<double> kl;
    for (const StageReport& stage : all.report.stages) kl.push_back(stage.kl->mean);
    ASSERT_EQ(kl.size(), 5u);
    for (std::size_t i = 1; i < kl.size(); ++i)
      EXPECT_LT(kl[i], kl[i - 1]) << block_format(type).name << " " << i;
  }
}

TEST_F(BlockStudentTest, LayersLearnTheirPartsAndCodes) {
  const QuantizationPlan plan = plan_quantization(*source_, {.params = BlockType::q3_k});
  std::vector<Method> methods = fits(InitialFit::gptq);
  methods.push_back(block_codes({.train = steps(true).train}));
  const std::vector<StageReport> stages = run(plan, methods).report.stages;
  EXPECT_LT(stages[3].kl->mean, 0.95 * stages[2].kl->mean);
}

// What the report says of a student is true of its bytes.
TEST_F(BlockStudentTest, TheBytesAreWhatWasMeasured) {
  const QuantizationPlan plan = plan_quantization(*source_, {.params = BlockType::q3_k});
  const Calibration c = run(plan, {plain_rounding(), dwq(steps(true))});
  Student read = copy_of(c.student);
  for (auto& [path, q] : read.parameters.quantized) {
    const Shape shape = weight_shape(q);
    q = from_block_bytes(path, q.blocks.type, shape, testing::download_bytes(to_block_bytes(path, q)),
                         Device::cpu());
  }
  const Teacher teacher(*source_, DType::f32, false, tape_);
  const Evaluation found = evaluate_stored(read, teacher, DType::f32, rows_, 4, {}, "test");
  EXPECT_EQ(found.kl->mean, c.report.result->kl->mean);
  EXPECT_LT(found.kl->mean, c.report.initial.kl->mean);
}

// Of a size to the byte, and nearer to the model than one type for all of the same size.
TEST_F(BlockStudentTest, TypesWithinABudget) {
  const CalibrationData data{rows_, rows_, {}, {}};
  const Teacher teacher(*source_, DType::f32, false, tape_);
  const QuantizationPlan open = plan_quantization(*source_, open_options(true));
  const SensitivityOptions o{.fits = fits(InitialFit::gptq), .references = reference_formats(true)};
  std::vector<ModuleLosses> losses = measure_sensitivity(teacher, open, data, o);
  for (const BlockType type : {BlockType::q3_k, BlockType::q4_k}) {
    const QuantizationPlan uniform = plan_quantization(*source_, {.params = type});
    const std::int64_t bytes = gguf_tensor_bytes(*source_, uniform, DType::f32);
    const CheckedPlan checked = checked_plan_within(teacher, open, losses, data, bytes, DType::f32, o);
    const GgufPlan file = plan_gguf(*source_, checked.plan, DType::f32);
    const std::int64_t tensors = file.tensor_bytes();
    EXPECT_LE(tensors, bytes);
    EXPECT_GT(tensors, bytes - bytes / 50);
    EXPECT_EQ(tensors, gguf_tensor_bytes(*source_, checked.plan, DType::f32));
    const auto fitted = fit_students(teacher, uniform, o.fits, rows_, 4);
    const Evaluation found = evaluate_stored(fitted.back().student, teacher, DType::f32, rows_, 4);
    EXPECT_LT(checked.kl, 0.95 * found.kl->mean) << block_format(type).name;
  }
}

TEST_F(BlockStudentTest, ADirectoryOfMlxDoesNotHoldThem) {
  const QuantizationPlan plan = plan_quantization(*source_, {.params = BlockType::q4_k});
  AtomicDirectory output(temp_ / "out");
  MIXTAPE_EXPECT_ERROR(write_rounded_model(output, *source_, plan, Rounding::gpu, DType::f32, Device::cpu()),
                       ErrorCode::invalid_argument, "is planned as Q4_K, which only a GGUF file holds");
  EXPECT_FALSE(std::filesystem::exists(temp_ / "out"));
}

}  // namespace
}  // namespace mixtape
