#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

namespace mixtape::oracle {

// Column numbers [rows, k].
template <class T>
std::vector<std::int64_t> top_k_indices(const std::vector<T>& x, std::int64_t cols, std::int64_t k) {
  std::vector<std::int64_t> indices;
  for (std::size_t row = 0; row < x.size(); row += cols) {
    std::vector<std::int64_t> order(cols);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      const double va = std::real(x[row + a]), vb = std::real(x[row + b]);
      return std::isnan(va) ? !std::isnan(vb) : va > vb;
    });
    indices.insert(indices.end(), order.begin(), order.begin() + k);
  }
  return indices;
}

template <class T>
std::vector<T> top_k(const std::vector<T>& x, std::int64_t cols, std::int64_t k) {
  const std::vector<std::int64_t> indices = top_k_indices(x, cols, k);
  std::vector<T> values;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    values.push_back(x[static_cast<std::int64_t>(i) / k * cols + indices[i]]);
  }
  return values;
}

inline std::vector<double> top_k_backward(const std::vector<double>& x, const std::vector<double>& dvalues,
                                          std::int64_t cols, std::int64_t k) {
  const std::vector<std::int64_t> indices = top_k_indices(x, cols, k);
  std::vector<double> dx(x.size());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    dx[static_cast<std::int64_t>(i) / k * cols + indices[i]] += dvalues[i];
  }
  return dx;
}

}  // namespace mixtape::oracle
