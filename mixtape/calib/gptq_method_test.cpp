#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/gptq.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/runtime/creation.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr std::int64_t kVocabulary = 263;

class GptqTest : public ::testing::Test {
 protected:
  // tr((W - Q) M (W - Q)^T) in f64 of each expert, or of the matrix; M its inputs' second moments.
  std::vector<double> errors(const Buffer& w, const QuantizedWeight& q, const Buffer& moments) {
    const Buffer decoded = tape_.device().alloc(DType::f32, w.shape());
    dequantize_affine_forward(tape_.encoder(), q, decoded);
    tape_.encoder().commit_and_wait();
    const std::vector<float> a = w.to_vector<float>(), b = decoded.to_vector<float>(),
                             m = moments.to_vector<float>();
    const auto k = static_cast<std::size_t>(w.shape().cols());
    const std::size_t experts = m.size() / (k * k), rows = a.size() / k / experts;
    std::vector<double> sums(experts);
    std::vector<double> e(k);
    for (std::size_t r = 0; r < experts * rows; ++r) {
      for (std::size_t c = 0; c < k; ++c)
        e[c] = static_cast<double>(a[r * k + c]) - static_cast<double>(b[r * k + c]);
      const float* h = m.data() + r / rows * k * k;
      for (std::size_t i = 0; i < k; ++i) {
        for (std::size_t j = 0; j < k; ++j) sums[r / rows] += e[i] * static_cast<double>(h[i * k + j]) * e[j];
      }
    }
    return sums;
  }

  Tape tape_{Device::cpu()};
  std::vector<TokenRow> rows_ = random_rows(24, 33, kVocabulary, 7);
};

// Of all three fits, in one walk: GPTQ's outputs are the nearest, least squares' nearer than rounding's. Scales are
// those of the fit before; the embedding and the experts that saw few tokens keep their codes.
TEST_F(GptqTest, OutputsComeNearerFitByFit) {
  for (const char* model : {"llama_tied_bias_rope3", "qwen3_moe"}) {
    const auto source = open_model(std::string("tests/data/parity/") + model);
    const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
    const Teacher teacher(*source, DType::f32, false, tape_);
    const std::vector<Method> methods = {plain_rounding(), least_squares(), gptq({.least_tokens = 150})};
    const std::vector<FittedStudent> fitted = fit_students(teacher, plan, methods, rows_, 8);
    std::vector<double> total(3);
    std::int64_t kept = 0;
    visit_input_statistics(
        teacher, plan, rows_, 8, Statistics::second_moments, {}, [&](const LayerStatistics& layer) {
          for (const auto& [path, inputs] : layer) {
            const PlannedModule& module = *plan.find(path);
            const Buffer w = source->load(module.source, DType::f32, Device::cpu());
            std::vector<std::vector<double>> e;
            for (const FittedStudent& f : fitted)
              e.push_back(errors(w, f.student.parameters.quantized.at(path), inputs.second_moments));
            const QuantizedWeight& before = fitted[1].student.parameters.quantized.at(path);
            const QuantizedWeight& after = fitted[2].student.parameters.quantized.at(path);
            EXPECT_EQ(before.scales.to_vector<float>(), after.scales.to_vector<float>());
            for (std::size_t x = 0; x < inputs.tokens.size(); ++x) {
              if (module.kind == TensorKind::embedding || inputs.tokens[x] < 150) {
                EXPECT_EQ(e[1][x], e[2][x]) << path;
                ++kept;
              } else {
                EXPECT_LT(e[2][x], e[1][x]) << path << " " << x;
              }
              for (std::size_t i = 0; i < 3; ++i) total[i] += e[i][x];
            }
          }
        });
    EXPECT_LT(total[1], 0.9 * total[0]) << model;
    EXPECT_LT(total[2], 0.8 * total[1]) << model;
    EXPECT_GT(kept, 0) << model;
    const bool is_sparse = std::string(model) == "qwen3_moe";
    EXPECT_EQ(!fitted[2].notes.empty(), is_sparse);
    if (is_sparse) {
      EXPECT_NE(fitted[2].notes[0].find("experts with too few tokens"), std::string::npos)
          << fitted[2].notes[0];
    }
  }
}

// Second moments without a factor leave the codes as they are, and say so.
TEST_F(GptqTest, NoFactor) {
  const PlannedModule module{"m", "m.weight", {4, 32}, TensorKind::matrix, AffineParams{4, 32}, ""};
  const Buffer w = randn(Device::cpu(), {4, 32}, 3);
  for (const float bad : {NAN, INFINITY, 0.0f}) {
    const InputStatistics inputs{
        {100}, full(Device::cpu(), {32}, 1.0), full(Device::cpu(), {32, 32}, static_cast<double>(bad))};
    const InputStatistics dead{{100}, zeros(Device::cpu(), {32}), zeros(Device::cpu(), {32, 32})};
    std::vector<std::string> notes;
    const InputStatistics& x = bad == 0.0f ? dead : inputs;
    const QuantizedWeight before = plain_rounding().fit({module, w, nullptr, nullptr, DType::bf16, notes});
    const QuantizedWeight after = gptq().fit({module, w, &x, &before, DType::bf16, notes});
    EXPECT_EQ(before.codes.to_vector<std::uint32_t>(), after.codes.to_vector<std::uint32_t>());
    EXPECT_EQ(notes, std::vector<std::string>{"m: its inputs' second moments have no factor, codes kept"});
  }
}

TEST_F(GptqTest, Refuses) {
  const auto source = open_model("tests/data/parity/llama");
  const Teacher teacher(*source, DType::f32, false, tape_);
  const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 32}});
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(fit_student(teacher, plan, gptq()), code, "expected a method that fits first");
  MIXTAPE_EXPECT_ERROR(gptq({.damping = 0.0}).check(*source, {}), code, "damping is 0");
  MIXTAPE_EXPECT_ERROR(gptq({.least_tokens = 0}).check(*source, {}), code, "least_tokens is 0");
}

}  // namespace
}  // namespace mixtape
