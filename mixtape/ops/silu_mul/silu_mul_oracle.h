#pragma once

#include <cmath>
#include <complex>
#include <vector>

namespace mixtape::oracle {

template <class T>
std::vector<T> silu_mul(const std::vector<T>& gate, const std::vector<T>& up) {
  std::vector<T> y(gate.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  return y;
}

inline std::vector<std::vector<double>> silu_mul_backward(const std::vector<double>& gate,
                                                          const std::vector<double>& up,
                                                          const std::vector<double>& dy) {
  std::vector<double> dgate(gate.size()), dup(gate.size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const double s = 1.0 / (1.0 + std::exp(-gate[i]));
    dgate[i] = dy[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s));
    dup[i] = dy[i] * gate[i] * s;
  }
  return {dgate, dup};
}

}  // namespace mixtape::oracle
