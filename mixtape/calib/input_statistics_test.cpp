#include "mixtape/calib/input_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/random_rows.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/temp_directory.h"

namespace mixtape {
namespace {

constexpr std::int64_t kVocabulary = 263;

class InputStatisticsTest : public ::testing::Test {
 protected:
  LayerStatistics all(const std::string& model, bool streamed, std::span<const TokenRow> rows,
                      std::int64_t batch, Statistics wanted, const RunHooks& hooks = {}) {
    const auto source = open_model("tests/data/parity/" + model);
    const Teacher teacher(*source, DType::f32, streamed, tape_);
    const QuantizationPlan plan = plan_quantization(*source, {.params = {4, 32}});
    LayerStatistics found;
    visits_ = 0;
    visit_input_statistics(teacher, plan, rows, batch, wanted, hooks, [&](const LayerStatistics& layer) {
      ++visits_;
      for (const auto& entry : layer) EXPECT_TRUE(found.insert(entry).second) << entry.first;
    });
    return found;
  }

  Tape tape_{Device::cpu()};
  std::vector<TokenRow> rows_ = random_rows(3, 11, kVocabulary, 5);
  std::int64_t visits_ = 0;
};

// What the first layer's projections see is the normed embedding of every token but a row's last one, which predicts
// nothing. Here in f64 from the file.
TEST_F(InputStatisticsTest, FirstLayerInF64) {
  rows_[1].resize(6);
  const auto source = open_model("tests/data/parity/llama");
  const auto table = source->load("model.embed_tokens.weight", DType::f32, Device::cpu()).to_vector<float>();
  const auto gain =
      source->load("model.layers.0.input_layernorm.weight", DType::f32, Device::cpu()).to_vector<float>();
  const std::size_t k = gain.size();
  std::vector<double> moments(k * k);
  std::int64_t tokens = 0;
  for (const TokenRow& row : rows_) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i, ++tokens) {
      std::vector<double> x(table.begin() + static_cast<std::ptrdiff_t>(row[i] * k),
                            table.begin() + static_cast<std::ptrdiff_t>((row[i] + 1) * k));
      const double square = std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(k);
      for (std::size_t c = 0; c < k; ++c)
        x[c] *= static_cast<double>(gain[c]) / std::sqrt(square + source->config().rms_norm_eps);
      for (std::size_t a = 0; a < k; ++a) {
        for (std::size_t b = 0; b < k; ++b) moments[a * k + b] += x[a] * x[b];
      }
    }
  }
  const LayerStatistics found = all("llama", false, rows_, 2, Statistics::second_moments);
  for (const char* letter : {"q", "k", "v"}) {
    const InputStatistics& s = found.at(std::string("model.layers.0.self_attn.") + letter + "_proj");
    EXPECT_EQ(s.tokens, std::vector{tokens});
    const std::vector<float> got = s.second_moments.to_vector<float>();
    const std::vector<float> squares = s.mean_squares.to_vector<float>();
    for (std::size_t a = 0; a < k; ++a) {
      EXPECT_NEAR(static_cast<double>(squares[a]) * static_cast<double>(tokens), moments[a * k + a], 1e-4);
      for (std::size_t b = 0; b < k; ++b)
        ASSERT_NEAR(static_cast<double>(got[a * k + b]), moments[a * k + b], 1e-4);
    }
  }
}

TEST_F(InputStatisticsTest, EveryQuantizedMatrixOnceAndTheHeadLast) {
  for (const char* model : {"llama", "llama_tied_bias_rope3", "qwen3_moe"}) {
    const auto source = open_model(std::string("tests/data/parity/") + model);
    const QuantizationPlan plan = plan_quantization(*source, {.params = {4, 32}});
    const LayerStatistics found = all(model, false, rows_, 2, Statistics::importance);
    EXPECT_EQ(visits_, std::ssize(source->config().layers) + 1);
    const bool tied = source->config().tie_word_embeddings;
    for (const PlannedModule& m : plan.modules) {
      const bool multiplies = m.kind != TensorKind::embedding || tied;
      EXPECT_EQ(found.contains(m.path), m.stored && multiplies) << model << ": " << m.path;
      if (!found.contains(m.path)) continue;
      EXPECT_EQ(found.at(m.path).mean_squares.shape().cols(), m.shape.cols());
      EXPECT_FALSE(found.at(m.path).second_moments);
    }
  }
}

// Each token goes to k experts; its squares are the diagonal of its expert's moments.
TEST_F(InputStatisticsTest, Experts) {
  const LayerStatistics found = all("qwen3_moe", false, rows_, 3, Statistics::second_moments);
  for (const char* name : {"gate_proj", "up_proj", "down_proj"}) {
    const InputStatistics& s = found.at(std::string("model.layers.0.mlp.switch_mlp.") + name);
    ASSERT_EQ(s.tokens.size(), 8u);
    EXPECT_EQ(std::accumulate(s.tokens.begin(), s.tokens.end(), std::int64_t{0}), 3 * 10 * 2);
    const auto k = static_cast<std::size_t>(s.mean_squares.shape().cols());
    const std::vector<float> squares = s.mean_squares.to_vector<float>();
    const std::vector<float> moments = s.second_moments.to_vector<float>();
    for (std::size_t e = 0; e < 8; ++e) {
      for (std::size_t c = 0; c < k; ++c) {
        const double diagonal = static_cast<double>(moments[(e * k + c) * k + c]);
        EXPECT_NEAR(static_cast<double>(squares[e * k + c]) * static_cast<double>(s.tokens[e]), diagonal,
                    1e-5 * (1.0 + diagonal));
      }
    }
  }
}

TEST_F(InputStatisticsTest, AStreamedTeacherGivesTheSame) {
  const LayerStatistics kept = all("qwen3", false, rows_, 2, Statistics::second_moments);
  const LayerStatistics streamed = all("qwen3", true, rows_, 2, Statistics::second_moments);
  ASSERT_EQ(kept.size(), streamed.size());
  for (const auto& [path, s] : kept) {
    EXPECT_EQ(s.second_moments.to_vector<float>(), streamed.at(path).second_moments.to_vector<float>());
    EXPECT_EQ(s.mean_squares.to_vector<float>(), streamed.at(path).mean_squares.to_vector<float>());
  }
}

// Behind layers of 8 bits a student's inputs are nearly the teacher's, behind layers of 2 bits they are not; importance
// and the first layer are the teacher's own.
TEST_F(InputStatisticsTest, InputsBehindAStudentsLayers) {
  const auto source = open_model("tests/data/parity/llama");
  const Teacher teacher(*source, DType::f32, false, tape_);
  const LayerStatistics plain = all("llama", false, rows_, 2, Statistics::second_moments);
  const auto distance = [](const Buffer& a, const Buffer& b) {
    const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
    double error = 0.0, size = 0.0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
      size += std::pow(static_cast<double>(y[i]), 2);
    }
    return std::sqrt(error / size);
  };
  for (const std::int32_t bits : {8, 2}) {
    const QuantizationPlan plan = plan_quantization(*source, {.params = {bits, 32}});
    const Student student = fit_student(teacher, plan, plain_rounding());
    visit_input_statistics(
        teacher, plan, rows_, 2, Statistics::cross_moments, {},
        [&](const LayerStatistics& layer) {
          for (const auto& [path, s] : layer) {
            const Buffer& moments = plain.at(path).second_moments;
            EXPECT_EQ(s.mean_squares.to_vector<float>(), plain.at(path).mean_squares.to_vector<float>());
            const double own = distance(s.second_moments, moments),
                         cross = distance(s.cross_moments, moments);
            if (layer_of(path) == 0) {
              EXPECT_EQ(own, 0.0) << path;
              EXPECT_EQ(cross, 0.0) << path;
            } else if (bits == 8) {
              EXPECT_LT(own, 0.02) << path;
              EXPECT_LT(cross, 0.02) << path;
            } else {
              EXPECT_GT(own, 0.05) << path;
              EXPECT_GT(cross, 0.05) << path;
            }
          }
        },
        [&](const std::string& path) { return student.parameters.quantized.at(path); });
  }
}

TEST_F(InputStatisticsTest, StopsAndRefuses) {
  bool stop = false;
  const RunHooks hooks{.progress = [&](const StageProgress& p) { stop |= p.done == 1; },
                       .should_stop = [&] { return stop; }};
  MIXTAPE_EXPECT_ERROR(all("llama", false, rows_, 2, Statistics::importance, hooks), ErrorCode::interrupted,
                       "input statistics: interrupted");
  EXPECT_EQ(visits_, 1);
  const ErrorCode code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(all("llama", false, rows_, 0, Statistics::importance), code, "batch size is 0");
  rows_ = {{1}};
  MIXTAPE_EXPECT_ERROR(all("llama", false, rows_, 1, Statistics::importance), code, "found no row");
}

}  // namespace
}  // namespace mixtape
