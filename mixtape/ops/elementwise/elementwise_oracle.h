#pragma once

#include <algorithm>
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
    case Unary::shift:
      return x + factor;
    case Unary::divide:
      return x / factor;
    case Unary::reciprocal:
      return factor / x;
    case Unary::power:
      return std::pow(x, factor);
    case Unary::relu:
      return std::real(x) > 0.0 ? x : 0.0 * x;
    case Unary::abs:
      return std::real(x) < 0.0 ? -x : x;
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
    case Unary::shift:
      return 1.0;
    case Unary::divide:
      return 1.0 / factor;
    case Unary::reciprocal:
      return -factor / (x * x);
    case Unary::power:
      return factor * std::pow(x, factor - 1.0);
    case Unary::relu:
      return x > 0.0 ? 1.0 : 0.0;
    case Unary::abs:
      return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : 0.0;
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
    case Binary::maximum:
      return std::real(a) >= std::real(b) ? a : b;
    case Binary::minimum:
      return std::real(a) <= std::real(b) ? a : b;
    case Binary::pow:
      return std::pow(a, b);
  }
  return a;
}

// dy/da and dy/db.
struct Slopes {
  double a, b;
};
inline Slopes binary_slopes(Binary op, double a, double b) {
  switch (op) {
    case Binary::add:
      return {1.0, 1.0};
    case Binary::sub:
      return {1.0, -1.0};
    case Binary::mul:
      return {b, a};
    case Binary::div:
      return {1.0 / b, -a / (b * b)};
    case Binary::maximum:
      return {a >= b ? 1.0 : 0.0, a >= b ? 0.0 : 1.0};
    case Binary::minimum:
      return {a <= b ? 1.0 : 0.0, a <= b ? 0.0 : 1.0};
    case Binary::pow:
      return {b * std::pow(a, b - 1.0), std::pow(a, b) * std::log(a)};
  }
  return {0.0, 0.0};
}

using Sizes = std::vector<std::int64_t>;

// Which element of an operand of these sizes stands at each of y's.
inline std::vector<std::size_t> broadcast_places(const Sizes& operand, const Sizes& y) {
  std::int64_t count = 1;
  for (const std::int64_t size : y) count *= size;
  std::vector<std::size_t> places;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t left = i, place = 0, stride = 1;
    for (std::size_t back = 1; back <= operand.size(); ++back) {
      const std::int64_t size = operand[operand.size() - back], at = left % y[y.size() - back];
      place += size == 1 ? 0 : at * stride;
      stride *= size;
      left /= y[y.size() - back];
    }
    places.push_back(static_cast<std::size_t>(place));
  }
  return places;
}

// Where the operands of y stand, in y's order.
struct Places {
  std::vector<std::size_t> a, b;
};

template <class T>
std::vector<T> binary(Binary op, const std::vector<T>& a, const std::vector<T>& b, const Places& at) {
  std::vector<T> y;
  for (std::size_t i = 0; i < at.a.size(); ++i) y.push_back(binary_value(op, a[at.a[i]], b[at.b[i]]));
  return y;
}

inline std::vector<std::vector<double>> binary_backward(Binary op, const std::vector<double>& a,
                                                        const std::vector<double>& b,
                                                        const std::vector<double>& dy, const Places& at) {
  std::vector<double> da(a.size(), 0.0), db(b.size(), 0.0);
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const Slopes slopes = binary_slopes(op, a[at.a[i]], b[at.b[i]]);
    da[at.a[i]] += dy[i] * slopes.a;
    db[at.b[i]] += dy[i] * slopes.b;
  }
  return {da, db};
}

// The largest sum of the magnitudes of slopes that one element of a or of b gets.
inline double largest_slope_sum(Binary op, const std::vector<double>& a, const std::vector<double>& b,
                                const Places& at) {
  std::vector<double> sums(a.size() + b.size(), 0.0);
  for (std::size_t i = 0; i < at.a.size(); ++i) {
    const Slopes slopes = binary_slopes(op, a[at.a[i]], b[at.b[i]]);
    sums[at.a[i]] += std::abs(slopes.a);
    sums[a.size() + at.b[i]] += std::abs(slopes.b);
  }
  return *std::max_element(sums.begin(), sums.end());
}

}  // namespace mixtape::oracle
