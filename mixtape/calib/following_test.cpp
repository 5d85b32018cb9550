#include "mixtape/calib/following.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mixtape/calib/fit_students.h"
#include "mixtape/calib/gptq.h"
#include "mixtape/calib/least_squares.h"
#include "mixtape/calib/plain_rounding.h"
#include "mixtape/calib/self_text.h"
#include "mixtape/runtime/creation.h"

namespace mixtape {
namespace {

using Matrix64 = std::vector<double>;  // row-major

Matrix64 product(const Matrix64& a, const Matrix64& b, std::size_t k) {  // [N, K] x [K, K]
  Matrix64 c(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < k; ++j) c[i] += a[i / k * k + j] * b[j * k + i % k];
  }
  return c;
}

// X with X A = R, by Gauss and Jordan.
Matrix64 solved(Matrix64 a, Matrix64 r, std::size_t k) {
  const std::size_t rows = r.size() / k;
  for (std::size_t i = 0; i < k; ++i) {
    for (std::size_t c = 0; c < k; ++c) {
      if (c == i) continue;
      const double f = a[i * k + c] / a[i * k + i];  // column c -= f * column i
      for (std::size_t n = 0; n < k; ++n) a[n * k + c] -= f * a[n * k + i];
      for (std::size_t n = 0; n < rows; ++n) r[n * k + c] -= f * r[n * k + i];
    }
  }
  for (std::size_t n = 0; n < rows; ++n) {
    for (std::size_t c = 0; c < k; ++c) r[n * k + c] /= a[c * k + c];
  }
  return r;
}

Matrix64 wide(const Buffer& b) {
  const std::vector<float> v = b.to_vector<float>();
  return {v.begin(), v.end()};
}

// Inputs x, and z that lack a part of them and have noise and an outlier channel.
struct Inputs {
  static constexpr std::int64_t kTokens = 300, kCols = 48;
  Matrix64 second = Matrix64(kCols * kCols), cross = Matrix64(kCols * kCols);

  InputStatistics statistics() const {
    const auto buffer = [](const Matrix64& m) {
      return Buffer::from(Device::cpu(), {kCols, kCols}, std::vector<float>(m.begin(), m.end()));
    };
    return {{kTokens}, ones(Device::cpu(), {kCols}), buffer(second), buffer(cross)};
  }

  Inputs() {
    const Matrix64 x = wide(randn(Device::cpu(), {kTokens, kCols}, 1));
    const Matrix64 noise = wide(randn(Device::cpu(), {kTokens, kCols}, 2));
    for (std::size_t t = 0; t < kTokens; ++t) {
      for (std::size_t i = 0; i < kCols; ++i) {
        for (std::size_t j = 0; j < kCols; ++j) {
          second[i * kCols + j] += z(x, noise, t, i) * z(x, noise, t, j);
          cross[i * kCols + j] += outlier(i) * x[t * kCols + i] * z(x, noise, t, j);
        }
      }
    }
  }

 private:
  static double outlier(std::size_t i) { return i == 7 ? 30.0 : 1.0; }
  static double z(const Matrix64& x, const Matrix64& noise, std::size_t t, std::size_t i) {
    return outlier(i) * (0.8 * x[t * kCols + i] + 0.3 * noise[t * kCols + i]);
  }
};

TEST(ShiftedTarget, IsTheSolutionInF64) {
  constexpr std::size_t k = Inputs::kCols;
  const Inputs inputs;
  const Buffer w = randn(Device::cpu(), {5, k}, 3);
  Matrix64 damped = inputs.second, shift = inputs.cross;
  double trace = 0.0;
  for (std::size_t i = 0; i < k; ++i) trace += damped[i * (k + 1)];
  for (std::size_t i = 0; i < k; ++i) damped[i * (k + 1)] += 0.01 * trace / k;
  for (std::size_t i = 0; i < k * k; ++i) shift[i] -= inputs.second[i];
  const Matrix64 x = solved(damped, product(wide(w), shift, k), k);
  const std::vector<float> got = shifted_target(w, inputs.statistics(), 0.5, 0.01).to_vector<float>();
  const Matrix64 before = wide(w);
  double error = 0.0, size = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - before[i] - 0.5 * x[i], 2);
    size += std::pow(0.5 * x[i], 2);
  }
  EXPECT_LT(std::sqrt(error / size), 0.01);
}

// Behind layers of 2 bits the last hidden states come nearer to the teacher's, on rows that no fit has seen; its own
// text, for there errors of one layer tell of the next one's inputs.
TEST(Following, HiddenStatesComeNearer) {
  const auto source = open_model("models/tiny-moe");
  Tape tape(Device::cpu());
  const Teacher teacher(*source, DType::f32, false, tape);
  const QuantizationPlan plan = plan_quantization(*source, {.params = {2, 32}});
  const std::vector<TokenRow> rows = self_rows(teacher.model(), tape, {.first = 0}, 64, 64, 64, 7);
  const auto error = [&](const std::vector<Method>& methods) {
    const Student student = fit_students(teacher, plan, methods, std::span(rows).first(48), 8).back().student;
    TapeWeights weights(tape, student.parameters, Trainable::nothing);
    const CausalLm model(student.config, weights, DType::f32);
    const NoGrad guard(tape);
    const Buffer ids = make_batch(tape.device(), std::span(rows).last(16)).ids;
    const Matrix64 a = wide(model.hidden(ids).value()), b = wide(teacher.model().hidden(ids).value());
    double sum = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
  };
  const double apart = error({plain_rounding(), least_squares(), gptq()});
  EXPECT_LT(error({plain_rounding(), following(least_squares()), following(gptq())}), 0.97 * apart);
}

}  // namespace
}  // namespace mixtape
