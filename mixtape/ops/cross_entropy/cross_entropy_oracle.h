#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

// A negative target is an ignored row.
template <class T>
std::vector<T> cross_entropy(const std::vector<T>& x, const std::vector<std::int64_t>& targets) {
  const std::size_t rows = targets.size(), cols = rows == 0 ? 0 : x.size() / rows;
  std::vector<T> loss(rows);
  for (std::size_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    const T* row = x.data() + r * cols;
    double max = std::real(row[0]);
    for (std::size_t c = 0; c < cols; ++c) max = std::real(row[c]) > max ? std::real(row[c]) : max;
    T sum = 0;
    for (std::size_t c = 0; c < cols; ++c) sum += std::exp(row[c] - max);
    loss[r] = std::log(sum) + max - row[targets[r]];
  }
  return loss;
}

inline std::vector<double> cross_entropy_backward(const std::vector<double>& x,
                                                  const std::vector<std::int64_t>& targets,
                                                  const std::vector<double>& dloss) {
  const std::size_t rows = targets.size(), cols = rows == 0 ? 0 : x.size() / rows;
  std::vector<double> dx(x.size());
  for (std::size_t r = 0; r < rows; ++r) {
    if (targets[r] < 0) continue;
    const double* row = x.data() + r * cols;
    double max = row[0], sum = 0.0;
    for (std::size_t c = 0; c < cols; ++c) max = row[c] > max ? row[c] : max;
    for (std::size_t c = 0; c < cols; ++c) sum += std::exp(row[c] - max);
    for (std::size_t c = 0; c < cols; ++c) {
      const double onehot = static_cast<std::int64_t>(c) == targets[r] ? 1.0 : 0.0;
      dx[r * cols + c] = dloss[r] * (std::exp(row[c] - max) / sum - onehot);
    }
  }
  return dx;
}

}  // namespace mixtape::oracle
