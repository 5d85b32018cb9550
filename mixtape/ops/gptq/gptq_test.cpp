#include "mixtape/ops/gptq/gptq.h"

#include <cmath>

#include "mixtape/ops/cholesky/cholesky.h"
#include "mixtape/ops/cholesky/cholesky_check.h"
#include "mixtape/ops/cholesky/cholesky_oracle.h"
#include "mixtape/ops/gptq/gptq_check.h"
#include "mixtape/ops/gptq/gptq_oracle.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantize/quantize_oracle.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/instruction_sets.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

// Codes, one by one.
Doubles gptq_codes(const Device& device, const std::vector<HostTensor>& in, AffineParams format) {
  const testing::Poison poison(device);
  CommandEncoder encoder(device);
  const Shape& w = in[0].shape;
  const Buffer words = device.alloc_uninitialized(DType::u32, packed_shape(w, format));
  gptq_forward(encoder, upload(device, in[0]), upload(device, in[1]), upload(device, in[2]),
               upload(device, in[3]), words, format);
  encoder.commit_and_wait();
  const Doubles packed = testing::download(words).values;
  Doubles codes;
  for (std::int64_t r = 0; r < w.rows(); ++r) {
    for (std::int64_t c = 0; c < w.cols(); ++c)
      codes.push_back(oracle::code_at(packed, r, c, format.packed_cols(w.cols()), format.bits));
  }
  return codes;
}

Doubles oracle_codes(const std::vector<HostTensor>& in, AffineParams format) {
  return oracle::gptq_codes(in[0].values, in[1].values, in[2].values, in[3].values, in[0].shape.cols(),
                            format.group_size, format.bits);
}

// w - q for one row of w [N,K].
Doubles row_error(const std::vector<HostTensor>& in, const Doubles& codes, AffineParams format,
                  std::int64_t row) {
  const std::int64_t cols = in[0].shape.cols(), groups = format.groups(cols);
  Doubles e;
  for (std::int64_t c = 0; c < cols; ++c) {
    const std::int64_t group = row * groups + c / format.group_size;
    e.push_back(in[0].values[row * cols + c] -
                (codes[row * cols + c] * in[2].values[group] + in[3].values[group]));
  }
  return e;
}

// e h e^T = |L e|^2.
double squared_error(const Doubles& e, const Doubles& factor) {
  const auto size = static_cast<std::int64_t>(e.size());
  double total = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    double sum = 0.0;
    for (std::int64_t j = 0; j <= i; ++j) sum += factor[i * size + j] * e[j];
    total += sum * sum;
  }
  return total;
}
double squared_error(const std::vector<HostTensor>& in, const Doubles& codes, AffineParams format) {
  double total = 0.0;
  for (std::int64_t r = 0; r < in[0].shape.rows(); ++r)
    total += squared_error(row_error(in, codes, format, r), in[1].values);
  return total;
}

// Every code is a nearest one to the t that the codes before it give, within the contract. w [N,K].
void expect_nearest(const std::vector<HostTensor>& in, const Doubles& codes, AffineParams format) {
  const std::int64_t rows = in[0].shape.rows(), cols = in[0].shape.cols(), groups = format.groups(cols);
  const Doubles &w = in[0].values, &l = in[1].values;
  double worst = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const Doubles e = row_error(in, codes, format, r);
    for (std::int64_t i = 0; i < cols; ++i) {
      double sum = 0.0, magnitude = 0.0;
      for (std::int64_t j = 0; j < i; ++j) {
        const double part = l[i * cols + j] / l[i * cols + i];
        sum += e[j] * part;
        magnitude += (std::abs(e[j]) + std::abs(w[r * cols + j])) * std::abs(part);
      }
      const std::int64_t group = r * groups + i / format.group_size, at = r * cols + i;
      const double s = in[2].values[group], b = in[3].values[group];
      const double x = std::clamp((w[at] + sum - b) / s, 0.0, static_cast<double>(format.max_code()));
      const double q = codes[at] * s + b;
      const double allowed = (static_cast<double>(i) + 8.0) * 0x1p-23 *
                             (std::abs(w[at]) + std::abs(b) + std::abs(q) + magnitude) / std::abs(s);
      worst = std::max(worst, (std::abs(codes[at] - x) - 0.5) / allowed);
    }
  }
  EXPECT_LE(worst, 1.0);
}

// Rounding to nearest of w [N,K], in f64.
Doubles nearest_codes(const std::vector<HostTensor>& in, AffineParams format) {
  const std::int64_t cols = in[0].shape.cols();
  std::vector<HostTensor> diagonal = in;
  for (std::int64_t i = 0; i < cols * cols; ++i) diagonal[1].values[i] = i % (cols + 1) == 0 ? 1.0 : 0.0;
  return oracle_codes(diagonal, format);
}

// w [rows, cols], the factor of h, and scales and biases by MLX's rule.
std::vector<HostTensor> problem(std::int64_t rows, const HostTensor& h, AffineParams format,
                                std::uint64_t seed) {
  const std::int64_t cols = h.shape.cols();
  const HostTensor w = testing::random_tensor(DType::f32, {rows, cols}, seed);
  Doubles scales, biases;
  std::vector<float> group(static_cast<std::size_t>(format.group_size));
  for (std::size_t at = 0; at < w.values.size(); at += group.size()) {
    std::copy_n(w.values.begin() + static_cast<std::ptrdiff_t>(at), group.size(), group.begin());
    const ScaleAndBias fit = fit_group(group, format.bits, Rounding::cpu);
    scales.push_back(fit.scale);
    biases.push_back(fit.bias);
  }
  const Shape groups = scales_shape(w.shape, format);
  return {w, testing::make_tensor(DType::f32, {cols, cols}, oracle::cholesky(h.values, cols).factor),
          testing::make_tensor(DType::f32, groups, scales), testing::make_tensor(DType::f32, groups, biases)};
}

TEST(Gptq, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, gptq_checks(device, dtype));
  }
}

TEST(Gptq, EveryInstructionSet) {
  testing::for_every_instruction_set([] {
    for (const DType dtype : testing::kValueDtypes) {
      const GptqCase c{{70, 192}, true, {3, 32}, dtype};
      EXPECT_EQ(gptq_codes(Device::cpu(), inputs_of(c), c.format), oracle_codes(inputs_of(c), c.format));
    }
  });
}

TEST(Gptq, EveryCodeIsANearestOne) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {96, 384, 800}) {
      if (device.name() == "sim" && cols > 384) continue;
      const AffineParams format{4, 32};
      const std::vector<HostTensor> in = problem(67, random_spd(1, cols, 1, 0.01), format, 2);
      const Doubles codes = gptq_codes(device, in, format);
      expect_nearest(in, codes, format);
      EXPECT_LE(squared_error(in, codes, format),
                1.001 * squared_error(in, oracle_codes(in, format), format));
    }
  }
}

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

TEST(Gptq, IsTheClassicalAlgorithm) {
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
TEST(Gptq, AgainstEverySetOfCodes) {
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

TEST(Gptq, DiagonalIsRoundingToNearest) {
  for (const Device& device : testing::test_devices()) {
    for (const int bits : {2, 3, 4, 5, 6, 8}) {
      for (const int group : {32, 64, 128}) {
        const AffineParams format{bits, group};
        HostTensor h = testing::make_tensor(DType::f32, {256, 256}, Doubles(256 * 256));
        for (std::int64_t i = 0; i < 256; ++i) h.values[i * 257] = group == 64 ? 1.0 : std::exp2(i % 40 - 20);
        const std::vector<HostTensor> in = problem(5, h, format, 7);
        CommandEncoder encoder(device);
        const Shape shape = in[0].shape;
        const Buffer words = device.alloc(DType::u32, packed_shape(shape, format)),
                     scales = device.alloc(DType::f32, scales_shape(shape, format)),
                     biases = device.alloc(DType::f32, scales_shape(shape, format));
        quantize_affine_forward(encoder, upload(device, in[0]), words, scales, biases, format, Rounding::cpu);
        const Buffer found = device.alloc(DType::u32, words.shape());
        gptq_forward(encoder, upload(device, in[0]), upload(device, in[1]), scales, biases, found, format);
        encoder.commit_and_wait();
        EXPECT_EQ(found.to_vector<std::uint32_t>(), words.to_vector<std::uint32_t>()) << bits << " " << group;
      }
    }
  }
}

// What one token leaves: rank one and a little on the diagonal. The row's output for that token is kept almost
// exactly, which rounding to nearest doesn't.
TEST(Gptq, OneToken) {
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
TEST(Gptq, WithCholesky) {
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

TEST(Gptq, ScalesOfZeroGiveCodesOfZero) {
  for (const Device& device : testing::test_devices()) {
    const AffineParams format{4, 32};
    std::vector<HostTensor> in = problem(4, random_spd(1, 96, 12, 0.1), format, 13);
    in[2].values[1] = in[2].values[6] = 0.0;
    const Doubles codes = gptq_codes(device, in, format);
    EXPECT_EQ(codes, oracle_codes(in, format));
    for (std::size_t c = 0; c < 32; ++c) EXPECT_EQ(codes[32 + c] + codes[2 * 96 + c], 0.0);
  }
}

TEST(Gptq, NanStaysInItsRow) {
  for (const Device& device : testing::test_devices()) {
    const AffineParams format{4, 32};
    std::vector<HostTensor> in = problem(11, random_spd(1, 160, 14, 0.1), format, 15);
    const Doubles before = gptq_codes(device, in, format);
    in[0].values[3 * 160 + 20] = NAN;
    const Doubles after = gptq_codes(device, in, format);
    for (std::size_t i = 0; i < after.size(); ++i) {
      const bool is_behind = i >= 3 * 160 + 20 && i < 4 * 160;
      EXPECT_EQ(after[i], is_behind ? 0.0 : before[i]) << i;
    }
  }
}

TEST(Gptq, WithoutRows) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const auto make = [&](DType dtype, const Shape& shape) { return device.alloc(dtype, shape); };
    const Buffer scales = make(DType::f32, {0, 2}), codes = make(DType::u32, {0, 8});
    gptq_forward(encoder, make(DType::f32, {0, 64}), make(DType::f32, {64, 64}), scales, scales, codes,
                 {4, 32});
    const Buffer none = make(DType::f32, {0, 3, 2});
    gptq_forward(encoder, make(DType::f32, {0, 3, 64}), make(DType::f32, {0, 64, 64}), none, none,
                 make(DType::u32, {0, 3, 8}), {4, 32});
    encoder.commit_and_wait();
  }
}

TEST(Gptq, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto make = [&](DType dtype, const Shape& shape) { return device.alloc(dtype, shape); };
  const Buffer w = make(DType::f32, {3, 64}), factor = make(DType::f32, {64, 64});
  const Buffer scales = make(DType::f32, {3, 2}), codes = make(DType::u32, {3, 8});
  const auto code = ErrorCode::invalid_argument;
  const auto run = [&](const Buffer& a, const Buffer& l, const Buffer& s, const Buffer& q, AffineParams p) {
    gptq_forward(encoder, a, l, s, s, q, p);
  };
  MIXTAPE_EXPECT_ERROR(run(w, factor, scales, codes, {7, 32}), code, "gptq: bits is 7");
  MIXTAPE_EXPECT_ERROR(run(make(DType::f32, {64}), factor, scales, codes, {4, 32}), code, "w is f32[64]");
  MIXTAPE_EXPECT_ERROR(run(make(DType::bf16, {3, 64}), factor, scales, codes, {4, 32}), code, "w is bf16");
  MIXTAPE_EXPECT_ERROR(run(w, factor, scales, codes, {4, 128}), code, "multiple of 128");
  MIXTAPE_EXPECT_ERROR(run(w, make(DType::f32, {3, 64}), scales, codes, {4, 32}), code,
                       "factor is f32[3,64], expected f32[64,64]");
  MIXTAPE_EXPECT_ERROR(
      run(make(DType::f32, {2, 3, 64}), make(DType::f32, {3, 64, 64}), scales, codes, {4, 32}), code,
      "factor is f32[3,64,64], expected f32[2,64,64]");
  MIXTAPE_EXPECT_ERROR(run(w, factor, make(DType::f32, {3, 4}), codes, {4, 32}), code, "scales is f32[3,4]");
  MIXTAPE_EXPECT_ERROR(run(w, factor, scales, make(DType::u32, {3, 10}), {4, 32}), code,
                       "codes is u32[3,10]");
}

}  // namespace
}  // namespace mixtape
