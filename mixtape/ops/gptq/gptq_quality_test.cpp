// What error feedback is worth: against the algorithm as it is usually written, every set of codes, and
// rounding to nearest.
#include "mixtape/ops/cholesky/cholesky.h"
#include "mixtape/ops/gptq/gptq_problem_check.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

// As it is usually written: the upper factor U of h^-1 = U^T U, and a weight that takes up the errors.
Doubles classical_codes(const std::vector<HostTensor>& in, const Doubles& h, AffineParams format) {
  const std::int64_t rows = in[0].shape.rows(), n = in[0].shape.cols();
  Doubles a = h, inverse(h.size());  // Gauss-Jordan
  for (std::int64_t i = 0; i < n; ++i) inverse[i * n + i] = 1.0;
  for (std::int64_t p = 0; p < n; ++p) {
    const double pivot = a[p * n + p];
    for (std::int64_t j = 0; j < n; ++j) a[p * n + j] /= pivot, inverse[p * n + j] /= pivot;
    for (std::int64_t i = 0; i < n; ++i) {
      const double times = i == p ? 0.0 : a[i * n + p];
      for (std::int64_t j = 0; j < n; ++j) {
        a[i * n + j] -= times * a[p * n + j];
        inverse[i * n + j] -= times * inverse[p * n + j];
      }
    }
  }
  Doubles u(h.size());
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = i; j < n; ++j) {
      double left = inverse[i * n + j];
      for (std::int64_t l = 0; l < i; ++l) left -= u[l * n + i] * u[l * n + j];
      u[i * n + j] = i == j ? std::sqrt(left) : left / u[i * n + i];
    }
  }
  Doubles w = in[0].values, codes(w.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t group = r * format.groups(n) + i / format.group_size;
      const double s = in[2].values[group], b = in[3].values[group];
      const double code =
          std::clamp(std::nearbyint((w[r * n + i] - b) / s), 0.0, static_cast<double>(format.max_code()));
      const double error = (w[r * n + i] - (code * s + b)) / u[i * n + i];
      for (std::int64_t j = i; j < n; ++j) w[r * n + j] -= error * u[i * n + j];
      codes[r * n + i] = code;
    }
  }
  return codes;
}

TEST(GptqQuality, IsTheClassicalAlgorithm) {
  for (const int bits : {2, 4}) {
    const AffineParams format{bits, 32};
    const HostTensor h = random_spd(1, 160, 3, 0.05);
    std::vector<HostTensor> in = problem(20, h, format, 4);
    in[1].values = oracle::cholesky(h.values, 160).factor;  // not rounded to f32
    const Doubles classical = classical_codes(in, h.values, format);
    EXPECT_EQ(oracle_codes(in, format), classical);
    for (const Device& device : testing::test_devices()) {
      in[1] = testing::make_tensor(DType::f32, in[1].shape, in[1].values);
      EXPECT_EQ(gptq_codes(device, in, format), classical) << device.name();
    }
  }
}

// All codes of six columns that depend on each other. The optimum is never above GPTQ's error, which is at most
// sum (L[i,i] s/2)^2 where no t leaves the range; rounding to nearest may beat GPTQ in a row, not in their sum.
TEST(GptqQuality, AgainstEverySetOfCodes) {
  constexpr std::int64_t kFree = 6, kRows = 40;
  const AffineParams format{2, 32};
  HostTensor h = testing::make_tensor(DType::f32, {32, 32}, Doubles(32 * 32));
  const HostTensor part = random_spd(1, kFree, 5, 0.02);
  for (std::int64_t i = 0; i < 32; ++i) {
    h.values[i * 33] = 1.0;
    for (std::int64_t j = 0; i < kFree && j < kFree; ++j) h.values[i * 32 + j] = part.values[i * kFree + j];
  }
  std::vector<HostTensor> in = problem(kRows, h, format, 6);
  in[2].values.assign(kRows, 1.0);  // wider than w: no t leaves the range
  in[3].values.assign(kRows, -1.5);
  for (std::size_t i = 0; i < in[0].values.size(); ++i)
    in[0].values[i] = i % 32 < kFree ? std::remainder(in[0].values[i], 1.0) : 0.5;
  for (const Device& device : testing::test_devices()) {
    const Doubles codes = gptq_codes(device, in, format);
    EXPECT_EQ(codes, oracle_codes(in, format));
    double babai = 0.0;
    for (std::int64_t i = 0; i < 32; ++i) babai += 0.25 * in[1].values[i * 33] * in[1].values[i * 33];
    for (std::int64_t r = 0; r < kRows; ++r) {
      double best = HUGE_VAL;
      Doubles tried = codes;
      for (int all = 0; all < 4096; ++all) {
        for (std::int64_t i = 0; i < kFree; ++i) tried[r * 32 + i] = all >> (2 * i) & 3;
        best = std::min(best, squared_error(row_error(in, tried, format, r), in[1].values));
      }
      const double found = squared_error(row_error(in, codes, format, r), in[1].values);
      EXPECT_LE(best, found);
      EXPECT_LE(found, babai);
    }
    EXPECT_LT(squared_error(in, codes, format), 0.9 * squared_error(in, nearest_codes(in, format), format));
  }
}

// What one token leaves: rank one and a little on the diagonal. The row's output for that token is kept almost
// exactly, which rounding to nearest doesn't.
TEST(GptqQuality, OneToken) {
  const AffineParams format{4, 32};
  const Doubles x = testing::random_tensor(DType::f32, {64}, 8).values;
  HostTensor h = testing::make_tensor(DType::f32, {64, 64}, Doubles(64 * 64));
  for (std::int64_t i = 0; i < 64 * 64; ++i) h.values[i] = x[i / 64] * x[i % 64] + (i % 65 == 0 ? 0.01 : 0.0);
  h = testing::make_tensor(DType::f32, h.shape, h.values);
  const std::vector<HostTensor> in = problem(16, h, format, 9);
  const auto output_error = [&](const Doubles& codes) {
    double total = 0.0;
    for (std::int64_t r = 0; r < 16; ++r) {
      const Doubles e = row_error(in, codes, format, r);
      double dot = 0.0;
      for (std::size_t i = 0; i < e.size(); ++i) dot += e[i] * x[i];
      total += dot * dot;
    }
    return total;
  };
  for (const Device& device : testing::test_devices()) {
    const Doubles codes = gptq_codes(device, in, format);
    expect_nearest(in, codes, format);
    EXPECT_LT(output_error(codes), 0.05 * output_error(nearest_codes(in, format)));
  }
}

// The factor comes from the op, and the weights' error is smaller than that of rounding.
TEST(GptqQuality, WithCholesky) {
  const AffineParams format{3, 64};
  const HostTensor h = random_spd(1, 192, 10, 0.01);
  std::vector<HostTensor> in = problem(30, h, format, 11);
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer factor = device.alloc(DType::f32, {1, 192, 192}), pivot = device.alloc(DType::f32, {1});
    cholesky_forward(encoder, upload(device, h), factor, pivot);
    encoder.commit_and_wait();
    in[1] = testing::download(factor.reshape({192, 192}));
    const Doubles codes = gptq_codes(device, in, format);
    expect_nearest(in, codes, format);
    EXPECT_LT(squared_error(in, codes, format), 0.8 * squared_error(in, nearest_codes(in, format), format));
  }
}

}  // namespace
}  // namespace mixtape
