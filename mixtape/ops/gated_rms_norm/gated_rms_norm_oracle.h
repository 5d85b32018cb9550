#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

template <class T>
T gated_rms_norm_rstd(const T* x, std::size_t cols, double eps) {
  T sum = 0;
  for (std::size_t c = 0; c < cols; ++c) sum += x[c] * x[c];
  return 1.0 / std::sqrt(sum / static_cast<double>(cols) + eps);
}

template <class T>
std::vector<T> gated_rms_norm(const std::vector<T>& x, const std::vector<T>& z, const std::vector<T>& w,
                              double eps) {
  std::vector<T> y(x.size());
  for (std::size_t row = 0; row < x.size(); row += w.size()) {
    const T rstd = gated_rms_norm_rstd(&x[row], w.size(), eps);
    for (std::size_t c = 0; c < w.size(); ++c) {
      const T gate = z[row + c] / (1.0 + std::exp(-z[row + c]));
      y[row + c] = x[row + c] * rstd * w[c] * gate;
    }
  }
  return y;
}

// dx, then dz, then dw.
inline std::vector<std::vector<double>> gated_rms_norm_backward(const std::vector<double>& x,
                                                                const std::vector<double>& z,
                                                                const std::vector<double>& w, double eps,
                                                                const std::vector<double>& dy) {
  const std::size_t cols = w.size();
  std::vector<double> dx(x.size()), dz(x.size()), dw(cols);
  for (std::size_t row = 0; row < x.size(); row += cols) {
    const double rstd = gated_rms_norm_rstd(&x[row], cols, eps);
    double dot = 0.0;
    std::vector<double> g(cols);
    for (std::size_t c = 0; c < cols; ++c) {
      const double s = 1.0 / (1.0 + std::exp(-z[row + c]));
      g[c] = dy[row + c] * z[row + c] * s;
      dot += g[c] * w[c] * x[row + c];
      dw[c] += g[c] * x[row + c] * rstd;
      dz[row + c] = dy[row + c] * x[row + c] * rstd * w[c] * s * (1.0 + z[row + c] * (1.0 - s));
    }
    for (std::size_t c = 0; c < cols; ++c)
      dx[row + c] = rstd * (g[c] * w[c] - x[row + c] * rstd * rstd * dot / static_cast<double>(cols));
  }
  return {dx, dz, dw};
}

}  // namespace mixtape::oracle
