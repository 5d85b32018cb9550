#pragma once

#include <cmath>
#include <complex>
#include <vector>

namespace mixtape::oracle {

// Of complex numbers the real part decides.
template <class T>
T at_most(T x, double limit) {
  return std::real(x) > limit ? T(limit) : x;
}
template <class T>
T at_least(T x, double limit) {
  return std::real(x) < limit ? T(limit) : x;
}

template <class T>
std::vector<T> clamped_swiglu(const std::vector<T>& gate, const std::vector<T>& up, double alpha,
                              double limit) {
  std::vector<T> y(gate.size());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const T g = at_most(gate[i], limit), u = at_least(at_most(up[i], limit), -limit);
    y[i] = g / (1.0 + std::exp(-alpha * g)) * (u + 1.0);
  }
  return y;
}

inline std::vector<std::vector<double>> clamped_swiglu_backward(const std::vector<double>& gate,
                                                                const std::vector<double>& up,
                                                                const std::vector<double>& dy, double alpha,
                                                                double limit) {
  std::vector<double> dgate(gate.size()), dup(gate.size());
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const double g = at_most(gate[i], limit), u = at_least(at_most(up[i], limit), -limit);
    const double s = 1.0 / (1.0 + std::exp(-alpha * g));
    if (gate[i] <= limit) dgate[i] = dy[i] * (u + 1.0) * s * (1.0 + alpha * g * (1.0 - s));
    if (std::abs(up[i]) <= limit) dup[i] = dy[i] * g * s;
  }
  return {dgate, dup};
}

}  // namespace mixtape::oracle
