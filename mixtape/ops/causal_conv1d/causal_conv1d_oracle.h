#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct ConvCase {
  std::int64_t batch = 1, length = 1, channels = 1, taps = 1;
  bool silu = false;

  std::size_t at(std::int64_t b, std::int64_t t, std::int64_t c) const {
    return static_cast<std::size_t>((b * length + t) * channels + c);
  }
  std::size_t history_at(std::int64_t b, std::int64_t t, std::int64_t c) const {  // t of [-(taps-1), 0)
    return static_cast<std::size_t>((b * (taps - 1) + taps - 1 + t) * channels + c);
  }
  std::size_t tap(std::int64_t c, std::int64_t j) const { return static_cast<std::size_t>(c * taps + j); }
};

// x with what came before it: history is empty, or as the contract has it; so is bias.
template <class T>
T conv_input(const ConvCase& p, const std::vector<T>& x, const std::vector<T>& history, std::int64_t b,
             std::int64_t t, std::int64_t c) {
  if (t >= 0) return x[p.at(b, t, c)];
  return history.empty() ? T(0) : history[p.history_at(b, t, c)];
}

template <class T>
std::vector<T> conv_sums(const ConvCase& p, const std::vector<T>& x, const std::vector<T>& w,
                         const std::vector<T>& bias, const std::vector<T>& history) {
  std::vector<T> a(x.size());
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t t = 0; t < p.length; ++t) {
      for (std::int64_t c = 0; c < p.channels; ++c) {
        T sum = bias.empty() ? T(0) : bias[static_cast<std::size_t>(c)];
        for (std::int64_t j = 0; j < p.taps; ++j)
          sum += w[p.tap(c, j)] * conv_input(p, x, history, b, t - p.taps + 1 + j, c);
        a[p.at(b, t, c)] = sum;
      }
    }
  }
  return a;
}

template <class T>
std::vector<T> causal_conv1d(const ConvCase& p, const std::vector<T>& x, const std::vector<T>& w,
                             const std::vector<T>& bias, const std::vector<T>& history) {
  std::vector<T> a = conv_sums(p, x, w, bias, history);
  if (!p.silu) return a;
  for (T& v : a) v = v / (1.0 + std::exp(-v));
  return a;
}

struct ConvGradients {
  std::vector<double> dx, dw, dbias, dhistory;
};

inline ConvGradients causal_conv1d_backward(const ConvCase& p, const std::vector<double>& x,
                                            const std::vector<double>& w, const std::vector<double>& bias,
                                            const std::vector<double>& history,
                                            const std::vector<double>& dy) {
  ConvGradients g{std::vector<double>(x.size()), std::vector<double>(w.size()),
                  std::vector<double>(bias.size()), std::vector<double>(history.size())};
  const std::vector<double> a = conv_sums(p, x, w, bias, history);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t t = 0; t < p.length; ++t) {
      for (std::int64_t c = 0; c < p.channels; ++c) {
        double da = dy[p.at(b, t, c)];
        if (p.silu) {
          const double s = 1.0 / (1.0 + std::exp(-a[p.at(b, t, c)]));
          da *= s * (1.0 + a[p.at(b, t, c)] * (1.0 - s));
        }
        if (!bias.empty()) g.dbias[static_cast<std::size_t>(c)] += da;
        for (std::int64_t j = 0; j < p.taps; ++j) {
          const std::int64_t from = t - p.taps + 1 + j;
          g.dw[p.tap(c, j)] += da * conv_input(p, x, history, b, from, c);
          if (from >= 0) g.dx[p.at(b, from, c)] += da * w[p.tap(c, j)];
          if (from < 0 && !history.empty()) g.dhistory[p.history_at(b, from, c)] += da * w[p.tap(c, j)];
        }
      }
    }
  }
  return g;
}

}  // namespace mixtape::oracle
