#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "mixtape/ops/elementwise/elementwise.h"

namespace mixtape::oracle {

inline constexpr double kGeluFactor = 0.7978845608028653558799;  // sqrt(2/pi)

template <class T>
T unary_value(Unary op, T x, double factor) {
  const T one = 1.0;
  switch (op) {
    case Unary::scale:
      return factor * x;
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return std::log(x);
    case Unary::sqrt:
      return std::sqrt(x);
    case Unary::rsqrt:
      return one / std::sqrt(x);
    case Unary::sigmoid:
      return one / (one + std::exp(-x));
    case Unary::tanh:
      return std::tanh(x);
    case Unary::gelu:
      return x / 2.0 * (one + std::tanh(kGeluFactor * (x + 0.044715 * x * x * x)));
    case Unary::silu:
      return x / (one + std::exp(-x));
    case Unary::softcap:
      return factor * std::tanh(x / factor);
  }
  return one;
}

inline double unary_slope(Unary op, double x, double factor) {
  const double s = 1.0 / (1.0 + std::exp(-x));
  const double t = std::tanh(kGeluFactor * (x + 0.044715 * x * x * x));
  switch (op) {
    case Unary::scale:
      return factor;
    case Unary::exp:
      return std::exp(x);
    case Unary::log:
      return 1.0 / x;
    case Unary::sqrt:
      return 0.5 / std::sqrt(x);
    case Unary::rsqrt:
      return -0.5 / (x * std::sqrt(x));
    case Unary::sigmoid:
      return s * (1.0 - s);
    case Unary::tanh:
      return 1.0 - std::tanh(x) * std::tanh(x);
    case Unary::gelu:
      return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * kGeluFactor * (1.0 + 0.134145 * x * x);
    case Unary::silu:
      return s * (1.0 + x * (1.0 - s));
    case Unary::softcap:
      return 1.0 - std::tanh(x / factor) * std::tanh(x / factor);
  }
  return 0.0;
}

template <class T>
T binary_value(Binary op, T a, T b) {
  switch (op) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::div:
      return a / b;
  }
  return a;
}

template <class T>
std::vector<T> binary(Binary op, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> y(a.size() > b.size() ? a.size() : b.size());
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = binary_value(op, a[i % a.size()], b[i % b.size()]);
  return y;
}

inline std::vector<std::vector<double>> binary_backward(Binary op, const std::vector<double>& a,
                                                        const std::vector<double>& b,
                                                        const std::vector<double>& dy) {
  std::vector<double> da(a.size(), 0.0), db(b.size(), 0.0);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const std::size_t p = i % a.size(), q = i % b.size();
    const double slope_a = op == Binary::mul ? b[q] : op == Binary::div ? 1.0 / b[q] : 1.0;
    const double slope_b = op == Binary::mul   ? a[p]
                           : op == Binary::div ? -a[p] / (b[q] * b[q])
                           : op == Binary::sub ? -1.0
                                               : 1.0;
    da[p] += dy[i] * slope_a;
    db[q] += dy[i] * slope_b;
  }
  return {da, db};
}

}  // namespace mixtape::oracle
