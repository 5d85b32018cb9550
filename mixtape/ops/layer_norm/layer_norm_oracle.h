#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

// A row's mean and rstd.
template <class T>
struct LayerNormRow {
  T mean, rstd;
  LayerNormRow(const T* x, std::size_t cols, double eps) : mean(0.0), rstd(0.0) {
    T squares = 0.0;
    for (std::size_t c = 0; c < cols; ++c) mean += x[c] / static_cast<double>(cols);
    for (std::size_t c = 0; c < cols; ++c) squares += (x[c] - mean) * (x[c] - mean);
    rstd = 1.0 / std::sqrt(squares / static_cast<double>(cols) + eps);
  }
};

// w and b may be empty.
template <class T>
std::vector<T> layer_norm(const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& b,
                          std::size_t cols, double eps) {
  std::vector<T> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += cols) {
    const LayerNormRow<T> r(&x[row], cols, eps);
    for (std::size_t c = 0; c < cols; ++c) {
      y[row + c] = (x[row + c] - r.mean) * r.rstd;
      if (!w.empty()) y[row + c] *= w[c];
      if (!b.empty()) y[row + c] += b[c];
    }
  }
  return y;
}

struct LayerNormGradients {
  std::vector<double> dx, dw, db;
};
inline LayerNormGradients layer_norm_backward(const std::vector<double>& x, const std::vector<double>& w,
                                              std::size_t cols, double eps, const std::vector<double>& dy) {
  LayerNormGradients d{std::vector<double>(x.size()), std::vector<double>(cols), std::vector<double>(cols)};
  const auto n = static_cast<double>(cols);
  for (std::size_t row = 0; row < x.size(); row += cols) {
    const LayerNormRow<double> r(&x[row], cols, eps);
    const auto h = [&](std::size_t c) { return (x[row + c] - r.mean) * r.rstd; };
    const auto g = [&](std::size_t c) { return w.empty() ? dy[row + c] : dy[row + c] * w[c]; };
    double sum_g = 0.0, sum_gh = 0.0;
    for (std::size_t c = 0; c < cols; ++c) {
      sum_g += g(c);
      sum_gh += g(c) * h(c);
      d.dw[c] += dy[row + c] * h(c);
      d.db[c] += dy[row + c];
    }
    for (std::size_t c = 0; c < cols; ++c) d.dx[row + c] = r.rstd * (g(c) - sum_g / n - h(c) * sum_gh / n);
  }
  return d;
}

}  // namespace mixtape::oracle
