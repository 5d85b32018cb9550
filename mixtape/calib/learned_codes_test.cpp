#include "mixtape/calib/learned_codes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

class LearnedCodesTest : public ::testing::Test {
 protected:
  static std::vector<std::uint32_t> codes(const Student& student, const std::string& path) {
    return student.parameters.quantized.at(path).codes.to_vector<std::uint32_t>();
  }

  Tape tape_{Device::cpu()};
  std::vector<TokenRow> rows_ = random_rows(24, 33, 263, 7);
};

// Taken up and let go at once, the codes are what they were, also where GPTQ chose others than the nearest; and what
// learns starts at the source's weight where that has the code.
TEST_F(LearnedCodesTest, StartWithoutAChange) {
  for (const char* model : {"llama_tied_bias_rope3", "qwen3_moe"}) {
    const auto source = open_model(std::string("tests/data/parity/") + model);
    const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
    const Teacher teacher(*source, DType::f32, false, tape_);
    const std::vector<Method> methods = fits(InitialFit::gptq);
    Student student = fit_students(teacher, plan, methods, rows_, 8).back().student;
    const Student before = student;
    add_latent_codes(student, teacher, plan);
    EXPECT_FALSE(student.parameters.latent.contains("model.embed_tokens"));
    EXPECT_EQ(student.parameters.latent.size() + 1, student.parameters.quantized.size());
    std::int64_t between = 0, at_code = 0;
    for (const auto& [path, latent] : student.parameters.latent) {
      for (const float u : latent.to_vector<float>()) ++(u == std::round(u) ? at_code : between);
    }
    EXPECT_GT(between, 3 * at_code);
    EXPECT_GT(at_code, 0);
    pack_latent_codes(student, tape_.device());
    EXPECT_TRUE(student.parameters.latent.empty());
    for (const auto& entry : before.parameters.quantized)
      EXPECT_EQ(codes(student, entry.first), codes(before, entry.first)) << entry.first;
  }
}

TEST_F(LearnedCodesTest, LearnBelowWhatScalesReachAlone) {
  const auto source = open_model("tests/data/parity/qwen3_moe");
  const QuantizationPlan plan = plan_quantization(*source, {.params = {2, 32}});
  DwqOptions o;
  o.train.steps = 30;
  o.train.batch_size = 8;
  o.train.learning_rate = 0.002;
  o.train.code_rate = 0.03;
  const auto run = [&](bool with_codes) {
    std::vector<Method> methods = fits(InitialFit::gptq);
    o.trains_codes = with_codes;
    methods.push_back(dwq(o));
    return calibrate(*source, plan, {rows_, rows_, rows_}, {.methods = methods, .compute = DType::f32},
                     tape_);
  };
  const Calibration scales = run(false), all = run(true);
  EXPECT_EQ(all.report.stages.back().method, "dwq with codes");
  EXPECT_LT(all.report.result->kl->mean, 0.9 * scales.report.result->kl->mean);
  EXPECT_NE(codes(all.student, "model.layers.0.self_attn.q_proj"),
            codes(scales.student, "model.layers.0.self_attn.q_proj"));
  EXPECT_EQ(codes(all.student, "model.embed_tokens"), codes(scales.student, "model.embed_tokens"));
}

}  // namespace
}  // namespace mixtape
