#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct AdamState {
  std::vector<double> p, m, v;
};

struct AdamSettings {
  double lr, beta1, beta2, eps, weight_decay, grad_scale, unit;
};

inline void adam_step(AdamState& s, const std::vector<double>& g, std::int64_t step, const AdamSettings& o) {
  for (std::size_t i = 0; i < s.p.size(); ++i) {
    const double gradient = o.grad_scale * g[i];
    s.m[i] = o.beta1 * s.m[i] + (1.0 - o.beta1) * gradient;
    s.v[i] = o.beta2 * s.v[i] + (1.0 - o.beta2) * gradient * gradient;
    const double m_hat = s.m[i] / (1.0 - std::pow(o.beta1, static_cast<double>(step)));
    const double v_hat = s.v[i] / (1.0 - std::pow(o.beta2, static_cast<double>(step)));
    s.p[i] -= o.lr * o.weight_decay * s.p[i];
    s.p[i] -= o.lr * o.unit * m_hat / (std::sqrt(v_hat) + o.eps);
  }
}

}  // namespace mixtape::oracle
