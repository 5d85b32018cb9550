#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
std::vector<T> softmax(const std::vector<T>& x, std::int64_t cols) {
  std::vector<T> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    double max = std::real(x[row]);
    for (std::int64_t c = 0; c < cols; ++c) max = std::real(x[row + c]) > max ? std::real(x[row + c]) : max;
    T sum = 0;
    for (std::int64_t c = 0; c < cols; ++c) sum += y[row + c] = std::exp(x[row + c] - max);
    for (std::int64_t c = 0; c < cols; ++c) y[row + c] /= sum;
  }
  return y;
}

inline std::vector<double> softmax_backward(const std::vector<double>& y, const std::vector<double>& dy,
                                            std::int64_t cols) {
  std::vector<double> dx(y.size());
  for (std::size_t row = 0; row < y.size(); row += cols) {
    double dot = 0.0;
    for (std::int64_t c = 0; c < cols; ++c) dot += y[row + c] * dy[row + c];
    for (std::int64_t c = 0; c < cols; ++c) dx[row + c] = y[row + c] * (dy[row + c] - dot);
  }
  return dx;
}

}  // namespace mixtape::oracle
