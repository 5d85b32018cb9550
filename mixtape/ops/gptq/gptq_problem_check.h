// Weights to quantize, and what their codes are measured by, for gptq's tests.
#pragma once

#include <cmath>

#include "mixtape/ops/cholesky/cholesky_check.h"
#include "mixtape/ops/cholesky/cholesky_oracle.h"
#include "mixtape/ops/gptq/gptq_check.h"
#include "mixtape/ops/gptq/gptq_oracle.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/ops/quantize/quantize_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {

// Codes, one by one.
inline testing::Doubles gptq_codes(const Device& device, const std::vector<testing::HostTensor>& in,
                                   AffineParams format) {
  const testing::Poison poison(device);
  CommandEncoder encoder(device);
  const Shape& w = in[0].shape;
  const Buffer words = device.alloc_uninitialized(DType::u32, packed_shape(w, format));
  gptq_forward(encoder, upload(device, in[0]), upload(device, in[1]),
               {words, upload(device, in[2]), upload(device, in[3]), format});
  encoder.commit_and_wait();
  const testing::Doubles packed = testing::download(words).values;
  testing::Doubles codes;
  for (std::int64_t r = 0; r < w.rows(); ++r) {
    for (std::int64_t c = 0; c < w.cols(); ++c)
      codes.push_back(oracle::code_at(packed, r, c, format.packed_cols(w.cols()), format.bits));
  }
  return codes;
}

inline testing::Doubles oracle_codes(const std::vector<testing::HostTensor>& in, AffineParams format) {
  return oracle::gptq_codes(in[0].values, in[1].values, in[2].values, in[3].values, in[0].shape.cols(),
                            format.group_size, format.bits);
}

// w - q for one row of w [N,K].
inline testing::Doubles row_error(const std::vector<testing::HostTensor>& in, const testing::Doubles& codes,
                                  AffineParams format, std::int64_t row) {
  const std::int64_t cols = in[0].shape.cols(), groups = format.groups(cols);
  testing::Doubles e;
  for (std::int64_t c = 0; c < cols; ++c) {
    const std::int64_t group = row * groups + c / format.group_size;
    e.push_back(in[0].values[row * cols + c] -
                (codes[row * cols + c] * in[2].values[group] + in[3].values[group]));
  }
  return e;
}

// e h e^T = |L e|^2.
inline double squared_error(const testing::Doubles& e, const testing::Doubles& factor) {
  const auto size = static_cast<std::int64_t>(e.size());
  double total = 0.0;
  for (std::int64_t i = 0; i < size; ++i) {
    double sum = 0.0;
    for (std::int64_t j = 0; j <= i; ++j) sum += factor[i * size + j] * e[j];
    total += sum * sum;
  }
  return total;
}
inline double squared_error(const std::vector<testing::HostTensor>& in, const testing::Doubles& codes,
                            AffineParams format) {
  double total = 0.0;
  for (std::int64_t r = 0; r < in[0].shape.rows(); ++r)
    total += squared_error(row_error(in, codes, format, r), in[1].values);
  return total;
}

// Every code is a nearest one to the t that the codes before it give, within the contract. w [N,K].
inline void expect_nearest(const std::vector<testing::HostTensor>& in, const testing::Doubles& codes,
                           AffineParams format) {
  const std::int64_t rows = in[0].shape.rows(), cols = in[0].shape.cols(), groups = format.groups(cols);
  const testing::Doubles &w = in[0].values, &l = in[1].values;
  double worst = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const testing::Doubles e = row_error(in, codes, format, r);
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
inline testing::Doubles nearest_codes(const std::vector<testing::HostTensor>& in, AffineParams format) {
  const std::int64_t cols = in[0].shape.cols();
  std::vector<testing::HostTensor> diagonal = in;
  for (std::int64_t i = 0; i < cols * cols; ++i) diagonal[1].values[i] = i % (cols + 1) == 0 ? 1.0 : 0.0;
  return oracle_codes(diagonal, format);
}

// w [rows, cols], the factor of h, and scales and biases by MLX's rule.
inline std::vector<testing::HostTensor> problem(std::int64_t rows, const testing::HostTensor& h,
                                                AffineParams format, std::uint64_t seed) {
  const std::int64_t cols = h.shape.cols();
  const testing::HostTensor w = testing::random_tensor(DType::f32, {rows, cols}, seed);
  testing::Doubles scales, biases;
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

}  // namespace mixtape
