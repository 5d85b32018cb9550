#pragma once

#include <complex>
#include <cstdint>
#include <vector>

#include "mixtape/ops/quantize/affine.h"

namespace mixtape::oracle {

// Code c of a row of u32 words, bit by bit. The words are exact in f64.
template <class T>
int code_at(const std::vector<T>& words, std::int64_t row, std::int64_t c, std::int64_t packed_cols,
            int bits) {
  int code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::int64_t bit = c * bits + b;
    const auto word = static_cast<std::uint64_t>(std::real(words[row * packed_cols + bit / 32]));
    code |= static_cast<int>((word >> (bit % 32)) & 1u) << b;
  }
  return code;
}

template <class T>
std::vector<T> dequantize(const std::vector<T>& words, const std::vector<T>& scales,
                          const std::vector<T>& biases, AffineParams p, std::int64_t cols) {
  const std::int64_t groups = p.groups(cols);
  const auto rows = static_cast<std::int64_t>(scales.size()) / groups;
  std::vector<T> w;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const double code = code_at(words, r, c, p.packed_cols(cols), p.bits);
      w.push_back(code * scales[r * groups + c / p.group_size] + biases[r * groups + c / p.group_size]);
    }
  }
  return w;
}

// {dscales, dbiases}
inline std::vector<std::vector<double>> dequantize_backward(const std::vector<double>& words,
                                                            const std::vector<double>& dw, AffineParams p,
                                                            std::int64_t cols) {
  const std::int64_t groups = p.groups(cols);
  const auto rows = static_cast<std::int64_t>(dw.size()) / cols;
  std::vector<double> dscales(rows * groups), dbiases(rows * groups);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t at = r * groups + c / p.group_size;
      dscales[at] += dw[r * cols + c] * code_at(words, r, c, p.packed_cols(cols), p.bits);
      dbiases[at] += dw[r * cols + c];
    }
  }
  return {dscales, dbiases};
}

}  // namespace mixtape::oracle
