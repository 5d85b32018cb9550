#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "mixtape/core/f16.h"
#include "mixtape/ops/block_scales/block_scales.h"

namespace mixtape::oracle {

inline bool is_inside(double u, SubGrid grid) { return u >= grid.lowest - 0.5 && u <= grid.highest + 0.5; }

inline double sub_scale(double u, SubGrid grid) {
  if (std::isnan(u)) return grid.lowest;
  const double lowest = grid.lowest, highest = grid.highest;
  return std::nearbyint(std::clamp(u, lowest, highest));  // halves to even
}
inline double outer_scale(double d) { return static_cast<float>(f16(static_cast<float>(d))); }
// Over complex numbers: what stands beside the real part passes straight through, which is how the gradient is meant.
inline std::complex<double> sub_scale(std::complex<double> u, SubGrid grid) {
  return {sub_scale(u.real(), grid), is_inside(u.real(), grid) ? u.imag() : 0.0};
}
inline std::complex<double> outer_scale(std::complex<double> d) { return {outer_scale(d.real()), d.imag()}; }

// u is empty where the rule stores no whole numbers.
template <class T>
std::vector<T> block_scales(const std::vector<T>& d, const std::vector<T>& u, const BlockScaleRule& rule) {
  std::vector<T> y;
  for (std::size_t b = 0; b < d.size(); ++b) {
    for (std::int32_t j = 0; j < rule.groups; ++j) {
      const T q = u.empty() ? T(1.0) : sub_scale(u[y.size()], rule.grid);
      y.push_back(static_cast<double>(rule.factor) * outer_scale(d[b]) * q);
    }
  }
  return y;
}

// {dd, du}, or {dd}.
inline std::vector<std::vector<double>> block_scales_backward(const std::vector<double>& d,
                                                              const std::vector<double>& u,
                                                              const std::vector<double>& dy,
                                                              const BlockScaleRule& rule) {
  std::vector<double> dd(d.size()), du(u.size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t block = i / static_cast<std::size_t>(rule.groups);
    const double step = static_cast<double>(rule.factor) * dy[i];
    dd[block] += step * (u.empty() ? 1.0 : sub_scale(u[i], rule.grid));
    if (!u.empty() && is_inside(u[i], rule.grid)) du[i] = step * outer_scale(d[block]);
  }
  if (!rule.grid.is_stored()) return {dd};
  return {dd, du};
}

}  // namespace mixtape::oracle
