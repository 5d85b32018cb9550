#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "mixtape/ops/quantize/affine.h"

namespace mixtape::oracle {

// Codes, one by one, of w [batch, rows, cols] with a factor [batch, cols, cols]. Groups may have any size.
inline std::vector<double> gptq_codes(const std::vector<double>& w, const std::vector<double>& factor,
                                      const std::vector<double>& scales, const std::vector<double>& biases,
                                      std::int64_t cols, std::int64_t group_size, std::int32_t bits) {
  const auto all = static_cast<std::int64_t>(w.size()) / cols;
  const std::int64_t rows = all * cols * cols / static_cast<std::int64_t>(factor.size());
  const double largest = (1 << bits) - 1;
  std::vector<double> codes(w.size());
  for (std::int64_t r = 0; r < all; ++r) {
    const double* l = factor.data() + r / rows * cols * cols;
    std::vector<double> e(static_cast<std::size_t>(cols));
    for (std::int64_t i = 0; i < cols; ++i) {
      double sum = 0.0;
      for (std::int64_t j = 0; j < i; ++j) sum += e[j] * l[i * cols + j];
      const std::int64_t group = r * (cols / group_size) + i / group_size;
      const double s = scales[group], b = biases[group];
      const double t = w[r * cols + i] + sum / l[i * cols + i];
      const double code = s == 0.0 ? 0.0 : std::clamp(std::nearbyint((t - b) / s), 0.0, largest);
      codes[r * cols + i] = code;
      e[i] = w[r * cols + i] - (code * s + b);
    }
  }
  return codes;
}

// Words of a row-major bit stream, exact in f64. Rows are multiples of 32 codes.
inline std::vector<double> pack_words(const std::vector<double>& codes, std::int32_t bits) {
  std::vector<double> words(codes.size() / 32 * static_cast<std::size_t>(bits));
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (std::size_t b = 0; b < static_cast<std::size_t>(bits); ++b) {
      const std::size_t at = i * static_cast<std::size_t>(bits) + b;
      if (static_cast<int>(codes[i]) >> b & 1) words[at / 32] += std::ldexp(1.0, static_cast<int>(at % 32));
    }
  }
  return words;
}

}  // namespace mixtape::oracle
