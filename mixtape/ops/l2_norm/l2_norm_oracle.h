#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
T l2_norm_factor(const T* x, std::int64_t cols, double eps) {
  T sum = 0;
  for (std::int64_t c = 0; c < cols; ++c) sum += x[c] * x[c];
  return 1.0 / std::sqrt(sum + eps);
}

template <class T>
std::vector<T> l2_norm(const std::vector<T>& x, std::int64_t cols, double eps) {
  std::vector<T> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    const T q = l2_norm_factor(&x[row], cols, eps);
    for (std::int64_t c = 0; c < cols; ++c) y[row + c] = x[row + c] * q;
  }
  return y;
}

inline std::vector<double> l2_norm_backward(const std::vector<double>& x, std::int64_t cols, double eps,
                                            const std::vector<double>& dy) {
  std::vector<double> dx(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    const double q = l2_norm_factor(&x[row], cols, eps);
    double dot = 0.0;
    for (std::int64_t c = 0; c < cols; ++c) dot += x[row + c] * dy[row + c];
    for (std::int64_t c = 0; c < cols; ++c) dx[row + c] = q * dy[row + c] - x[row + c] * q * q * q * dot;
  }
  return dx;
}

}  // namespace mixtape::oracle
