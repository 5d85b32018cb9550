#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
T rms_norm_rstd(const T* x, std::int64_t cols, double eps) {
  T sum = 0;
  for (std::int64_t c = 0; c < cols; ++c) sum += x[c] * x[c];
  return 1.0 / std::sqrt(sum / static_cast<double>(cols) + eps);
}

template <class T>
std::vector<T> rms_norm(const std::vector<T>& x, const std::vector<T>& w, double eps) {
  const auto cols = static_cast<std::int64_t>(w.size());
  std::vector<T> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += w.size()) {
    const T rstd = rms_norm_rstd(&x[row], cols, eps);
    for (std::size_t c = 0; c < w.size(); ++c) y[row + c] = x[row + c] * rstd * w[c];
  }
  return y;
}

// dx, then dw.
inline std::vector<std::vector<double>> rms_norm_backward(const std::vector<double>& x,
                                                          const std::vector<double>& w, double eps,
                                                          const std::vector<double>& dy) {
  const auto cols = static_cast<double>(w.size());
  std::vector<double> dx(x.size()), dw(w.size());
  for (std::size_t row = 0; row < x.size(); row += w.size()) {
    const double rstd = rms_norm_rstd(&x[row], static_cast<std::int64_t>(w.size()), eps);
    double dot = 0.0;
    for (std::size_t c = 0; c < w.size(); ++c) dot += dy[row + c] * w[c] * x[row + c];
    for (std::size_t c = 0; c < w.size(); ++c) {
      dx[row + c] = rstd * (dy[row + c] * w[c] - x[row + c] * rstd * rstd / cols * dot);
      dw[c] += dy[row + c] * x[row + c] * rstd;
    }
  }
  return {dx, dw};
}

}  // namespace mixtape::oracle
