#pragma once

#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
std::vector<T> take_along_axis(const std::vector<T>& x, const std::vector<double>& index, std::int64_t cols,
                               std::int64_t k) {
  std::vector<T> y;
  for (std::size_t i = 0; i < index.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / k;
    y.push_back(x[static_cast<std::size_t>(row * cols + static_cast<std::int64_t>(index[i]))]);
  }
  return y;
}

// `count` elements of x.
inline std::vector<double> take_along_axis_backward(const std::vector<double>& index,
                                                    const std::vector<double>& dy, std::int64_t cols,
                                                    std::int64_t k, std::size_t count) {
  std::vector<double> dx(count, 0.0);
  for (std::size_t i = 0; i < index.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / k;
    dx[static_cast<std::size_t>(row * cols + static_cast<std::int64_t>(index[i]))] += dy[i];
  }
  return dx;
}

}  // namespace mixtape::oracle
