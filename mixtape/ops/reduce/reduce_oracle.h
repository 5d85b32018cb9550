#pragma once

#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
std::vector<T> row_sum(const std::vector<T>& x, std::int64_t cols, double divisor) {
  std::vector<T> y(x.size() / static_cast<std::size_t>(cols), T(0.0));
  for (std::size_t i = 0; i < x.size(); ++i) y[i / static_cast<std::size_t>(cols)] += x[i] / divisor;
  return y;
}

inline std::vector<double> row_sum_backward(const std::vector<double>& dy, std::int64_t cols,
                                            double divisor) {
  std::vector<double> dx;
  for (const double d : dy) dx.insert(dx.end(), static_cast<std::size_t>(cols), d / divisor);
  return dx;
}

template <class T>
T masked_mean(const std::vector<T>& loss, const std::vector<double>& weights) {
  T sum = 0.0;
  double total = 0.0;
  for (std::size_t r = 0; r < loss.size(); ++r) {
    if (weights[r] != 0.0) sum += weights[r] * loss[r];
    total += weights[r];
  }
  return total == 0.0 ? T(0.0) : sum / total;
}

inline std::vector<double> masked_mean_backward(const std::vector<double>& weights, double dy) {
  double total = 0.0;
  for (const double w : weights) total += w;
  std::vector<double> dloss(weights.size(), 0.0);
  for (std::size_t r = 0; r < weights.size(); ++r) dloss[r] = total == 0.0 ? 0.0 : dy * weights[r] / total;
  return dloss;
}

}  // namespace mixtape::oracle
