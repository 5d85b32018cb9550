#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct Cholesky {
  std::vector<double> factor;
  std::vector<double> min_pivots;
};

// h [batch, size, size], positive definite.
inline Cholesky cholesky(const std::vector<double>& h, std::int64_t size) {
  Cholesky out{std::vector<double>(h.size()), {}};
  for (std::size_t at = 0; at < h.size(); at += static_cast<std::size_t>(size * size)) {
    double* factor = out.factor.data() + at;
    double min_pivot = HUGE_VAL;
    for (std::int64_t i = size - 1; i >= 0; --i) {
      for (std::int64_t j = i; j >= 0; --j) {
        double left = h[at + static_cast<std::size_t>(i * size + j)];
        for (std::int64_t l = i + 1; l < size; ++l) left -= factor[l * size + i] * factor[l * size + j];
        if (j == i) min_pivot = std::fmin(min_pivot, left);
        factor[i * size + j] = j == i ? std::sqrt(left) : left / factor[i * size + i];
      }
    }
    out.min_pivots.push_back(min_pivot);
  }
  return out;
}

}  // namespace mixtape::oracle
