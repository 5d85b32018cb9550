// The search of fit_affine in straight loops, in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "mixtape/core/bf16.h"
#include "mixtape/core/dtype.h"
#include "mixtape/core/f16.h"
#include "mixtape/ops/quantize/affine.h"

namespace mixtape::oracle {

inline double rounded_to(DType dtype, double v) {
  const auto f = static_cast<float>(v);
  if (dtype == DType::bf16) return static_cast<float>(bf16(f));
  return dtype == DType::f16 ? static_cast<float>(f16(f)) : f;
}

struct AffineFit {
  double scale = 0.0, bias = 0.0, error = HUGE_VAL;
};

struct FitGroup {
  std::vector<double> w, h;
  int bits;
  DType dtype;

  double code(double v, double scale, double bias) const {
    return std::clamp(std::nearbyint((v - bias) / scale), 0.0, std::pow(2.0, bits) - 1.0);
  }
  std::vector<double> codes(double scale, double bias) const {
    std::vector<double> all;
    for (const double v : w) all.push_back(code(v, scale, bias));
    return all;
  }
  double error(double scale, double bias) const {
    double sum = 0.0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double r = w[i] - (code(w[i], scale, bias) * scale + bias);
      sum += h[i] * r * r;
    }
    return sum;
  }
  double mean(const std::vector<double>& v) const {
    double sum = 0.0, total = 0.0;
    for (std::size_t i = 0; i < v.size(); ++i) {
      sum += h[i] * v[i];
      total += h[i];
    }
    return sum / total;
  }
};

// As MLX: the extreme of larger magnitude is code 0, and 0 is a code.
inline AffineFit mlx_rule(const FitGroup& g) {
  const double low = *std::min_element(g.w.begin(), g.w.end());
  const double high = std::max(0.0, *std::max_element(g.w.begin(), g.w.end()));
  const double step = std::max((high - low) / (std::pow(2.0, g.bits) - 1.0), 1e-7);
  const double edge = std::abs(low) > std::abs(high) ? low : high, scale = edge == low ? step : -step;
  const double zero = std::round(edge / scale);
  if (zero == 0.0) return {rounded_to(g.dtype, scale), 0.0};
  return {rounded_to(g.dtype, edge / zero), rounded_to(g.dtype, edge)};
}

// The bias that fits this scale best, for the codes of `at`.
inline AffineFit with_scale(const FitGroup& g, AffineFit at, double scale) {
  if (scale == 0.0) scale = at.scale;
  return {scale, rounded_to(g.dtype, g.mean(g.w) - scale * g.mean(g.codes(at.scale, at.bias)))};
}

inline AffineFit least_squares(const FitGroup& g, AffineFit at) {
  const std::vector<double> codes = g.codes(at.scale, at.bias);
  const double mean_w = g.mean(g.w), mean_code = g.mean(codes);
  double covariance = 0.0, variance = 0.0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    covariance += g.h[i] * (codes[i] - mean_code) * (g.w[i] - mean_w);
    variance += g.h[i] * (codes[i] - mean_code) * (codes[i] - mean_code);
  }
  return with_scale(g, at, variance > 0.0 ? rounded_to(g.dtype, covariance / variance) : at.scale);
}

inline void follow(const FitGroup& g, AffineFit at, int turns, AffineFit& best) {
  for (int t = 0; t < turns; ++t) {
    at.error = g.error(at.scale, at.bias);
    if (at.error < best.error) best = at;
    at = least_squares(g, at);
  }
}

inline AffineFit range(const FitGroup& g, double low, double high, const AffineFit& otherwise) {
  const double bias = rounded_to(g.dtype, std::abs(low) <= std::abs(high) ? low : high);
  const double far = std::abs(high - bias) >= std::abs(low - bias) ? high : low;
  const double scale = rounded_to(g.dtype, (far - bias) / (std::pow(2.0, g.bits) - 1.0));
  return scale == 0.0 ? otherwise : AffineFit{scale, bias};
}

// A group's best pair; h of all zeros counts all alike, a weight whose h is 0 doesn't count.
inline AffineFit fit_affine(FitGroup g) {
  AffineFit best = mlx_rule(g);
  const double largest = *std::max_element(g.h.begin(), g.h.end());
  if (largest == 0.0) std::fill(g.h.begin(), g.h.end(), 1.0);
  FitGroup counted{{}, {}, g.bits, g.dtype};
  for (std::size_t i = 0; i < g.w.size(); ++i) {
    if (g.h[i] == 0.0) continue;
    counted.w.push_back(g.w[i]);
    counted.h.push_back(g.h[i]);
  }
  const double low = *std::min_element(counted.w.begin(), counted.w.end());
  const double high = *std::max_element(counted.w.begin(), counted.w.end()), mean = counted.mean(counted.w);
  follow(counted, best, 3, best);
  const double least = g.bits == 2 ? 0.35 : 1.0 - std::pow(2.0, 2 - g.bits);
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      const double down = 1.0 - i * (1.0 - least) / 5, up = 1.0 - j * (1.0 - least) / 5;
      follow(counted, range(counted, mean + down * (low - mean), mean + up * (high - mean), best), 3, best);
    }
  }
  follow(counted, best, 5, best);
  const AffineFit middle = best;
  for (const int k : {-3, -2, -1, 1, 2, 3}) {
    const double scale = rounded_to(g.dtype, middle.scale * (1.0 + 0.75 * k * epsilon(g.dtype)));
    follow(counted, with_scale(counted, middle, scale), 1, best);
  }
  return best;
}

}  // namespace mixtape::oracle
