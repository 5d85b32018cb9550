#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "mixtape/ops/quantize/affine.h"

namespace mixtape::oracle {

inline bool is_inside(double u, AffineParams p) { return u >= -0.5 && u <= p.max_code() + 0.5; }

inline double latent_code(double u, AffineParams p) {
  if (std::isnan(u)) return 0.0;
  return std::nearbyint(std::clamp(u, 0.0, static_cast<double>(p.max_code())));  // halves to even
}
// Over complex numbers: what u is beside its real part passes straight through inside the range, which is how
// the gradient is meant.
inline std::complex<double> latent_code(std::complex<double> u, AffineParams p) {
  return {latent_code(u.real(), p), is_inside(u.real(), p) ? u.imag() : 0.0};
}

template <class T>
std::vector<T> latent_codes(const std::vector<T>& u, const std::vector<T>& scales,
                            const std::vector<T>& biases, AffineParams p) {
  std::vector<T> w;
  for (std::size_t i = 0; i < u.size(); ++i) {
    const std::size_t group = i / static_cast<std::size_t>(p.group_size);
    w.push_back(latent_code(u[i], p) * scales[group] + biases[group]);
  }
  return w;
}

// {du, dscales, dbiases}
inline std::vector<std::vector<double>> latent_codes_backward(const std::vector<double>& u,
                                                              const std::vector<double>& scales,
                                                              const std::vector<double>& dw, AffineParams p) {
  std::vector<double> du(u.size()), dscales(scales.size()), dbiases(scales.size());
  for (std::size_t i = 0; i < u.size(); ++i) {
    const std::size_t group = i / static_cast<std::size_t>(p.group_size);
    du[i] = is_inside(u[i], p) ? dw[i] * scales[group] : 0.0;
    dscales[group] += dw[i] * latent_code(u[i], p);
    dbiases[group] += dw[i];
  }
  return {du, dscales, dbiases};
}

}  // namespace mixtape::oracle
