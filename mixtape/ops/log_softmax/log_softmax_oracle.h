#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
std::vector<T> log_softmax(const std::vector<T>& x, std::int64_t cols) {
  std::vector<T> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    double max = std::real(x[row]);
    for (std::int64_t c = 0; c < cols; ++c) max = std::real(x[row + c]) > max ? std::real(x[row + c]) : max;
    T sum = 0.0;
    for (std::int64_t c = 0; c < cols; ++c) sum += std::exp(x[row + c] - max);
    for (std::int64_t c = 0; c < cols; ++c) y[row + c] = x[row + c] - max - std::log(sum);
  }
  return y;
}

inline std::vector<double> log_softmax_backward(const std::vector<double>& x, const std::vector<double>& dy,
                                                std::int64_t cols) {
  const std::vector<double> y = log_softmax(x, cols);
  std::vector<double> dx(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    double sum = 0.0;
    for (std::int64_t c = 0; c < cols; ++c) sum += dy[row + c];
    for (std::int64_t c = 0; c < cols; ++c) dx[row + c] = dy[row + c] - std::exp(y[row + c]) * sum;
  }
  return dx;
}

}  // namespace mixtape::oracle
