#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct DeltaCase {
  std::int64_t batch = 1, length = 1, key_heads = 1, value_heads = 1, key_dim = 1, value_dim = 1;
  double scale = 1.0;

  std::int64_t key_head(std::int64_t head) const { return head / (value_heads / key_heads); }
  std::size_t key(std::int64_t b, std::int64_t t, std::int64_t head) const {  // q and k of a value head
    return static_cast<std::size_t>(((b * length + t) * key_heads + key_head(head)) * key_dim);
  }
  std::size_t gate(std::int64_t b, std::int64_t t, std::int64_t head) const {
    return static_cast<std::size_t>((b * length + t) * value_heads + head);
  }
  std::size_t value(std::int64_t b, std::int64_t t, std::int64_t head) const {
    return gate(b, t, head) * static_cast<std::size_t>(value_dim);
  }
  std::size_t state_size() const { return static_cast<std::size_t>(value_dim * key_dim); }
  std::size_t state(std::int64_t b, std::int64_t head) const {
    return static_cast<std::size_t>(b * value_heads + head) * state_size();
  }
};

template <class T>
struct DeltaInputs {
  std::vector<T> q, k, v, g, beta, initial;  // initial may be empty: zeros
};

// The states of one head, [length + 1] of [Dv, Dk]: before each position, and after the last. u[t] is what position
// t adds along its key.
template <class T>
struct DeltaHead {
  std::vector<std::vector<T>> states, u;
};

template <class T>
DeltaHead<T> delta_head(const DeltaCase& c, const DeltaInputs<T>& in, std::int64_t b, std::int64_t head) {
  DeltaHead<T> h;
  std::vector<T> s(c.state_size());
  if (!in.initial.empty())
    std::copy_n(in.initial.begin() + static_cast<std::ptrdiff_t>(c.state(b, head)), s.size(), s.begin());
  for (std::int64_t t = 0; t < c.length; ++t) {
    h.states.push_back(s);
    const T* k = &in.k[c.key(b, t, head)];
    const T* v = &in.v[c.value(b, t, head)];
    const T decay = std::exp(in.g[c.gate(b, t, head)]), beta = in.beta[c.gate(b, t, head)];
    std::vector<T> u(static_cast<std::size_t>(c.value_dim));
    for (std::int64_t i = 0; i < c.value_dim; ++i) {
      T* row = &s[static_cast<std::size_t>(i * c.key_dim)];
      T seen = 0;
      for (std::int64_t d = 0; d < c.key_dim; ++d) {
        row[d] *= decay;
        seen += row[d] * k[d];
      }
      u[static_cast<std::size_t>(i)] = beta * (v[i] - seen);
      for (std::int64_t d = 0; d < c.key_dim; ++d) row[d] += u[static_cast<std::size_t>(i)] * k[d];
    }
    h.u.push_back(u);
  }
  h.states.push_back(s);
  return h;
}

template <class T>
struct DeltaOutputs {
  std::vector<T> y, state;
};

template <class T>
DeltaOutputs<T> gated_delta_rule(const DeltaCase& c, const DeltaInputs<T>& in) {
  DeltaOutputs<T> out{std::vector<T>(in.v.size()),
                      std::vector<T>(static_cast<std::size_t>(c.batch * c.value_heads) * c.state_size())};
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t head = 0; head < c.value_heads; ++head) {
      const DeltaHead<T> h = delta_head(c, in, b, head);
      for (std::int64_t t = 0; t < c.length; ++t) {
        const T* q = &in.q[c.key(b, t, head)];
        for (std::int64_t i = 0; i < c.value_dim; ++i) {
          T sum = 0;
          for (std::int64_t d = 0; d < c.key_dim; ++d)
            sum +=
                h.states[static_cast<std::size_t>(t + 1)][static_cast<std::size_t>(i * c.key_dim + d)] * q[d];
          out.y[c.value(b, t, head) + static_cast<std::size_t>(i)] = c.scale * sum;
        }
      }
      std::copy(h.states.back().begin(), h.states.back().end(),
                out.state.begin() + static_cast<std::ptrdiff_t>(c.state(b, head)));
    }
  }
  return out;
}

inline DeltaInputs<double> zeros_like(const DeltaInputs<double>& in) {
  return {std::vector<double>(in.q.size()),    std::vector<double>(in.k.size()),
          std::vector<double>(in.v.size()),    std::vector<double>(in.g.size()),
          std::vector<double>(in.beta.size()), std::vector<double>(in.initial.size())};
}

struct DeltaGradients {
  DeltaInputs<double> values;
  DeltaInputs<double> magnitudes;  // of the terms that each is a sum of, added up

  explicit DeltaGradients(const DeltaInputs<double>& in)
      : values(zeros_like(in)), magnitudes(zeros_like(in)) {}
  void add(std::vector<double> DeltaInputs<double>::*which, std::size_t at, double term) {
    (values.*which)[at] += term;
    (magnitudes.*which)[at] += std::abs(term);
  }
};

// One row i of the state [Dv, Dk], a step back: ds is of the state after position t, and becomes that of the one before.
inline void step_back(const DeltaCase& c, const DeltaInputs<double>& in, const DeltaHead<double>& h,
                      std::int64_t b, std::int64_t head, std::int64_t t, std::int64_t i, double dy,
                      double* ds, DeltaGradients& grad) {
  using Inputs = DeltaInputs<double>;
  const auto row = static_cast<std::size_t>(i * c.key_dim);
  const double* before = &h.states[static_cast<std::size_t>(t)][row];
  const double* after = &h.states[static_cast<std::size_t>(t + 1)][row];
  const double u = h.u[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)];
  const std::size_t keys = c.key(b, t, head), gate = c.gate(b, t, head);
  const std::size_t value = c.value(b, t, head) + static_cast<std::size_t>(i);
  const double decay = std::exp(in.g[gate]), beta = in.beta[gate];
  const auto dim = static_cast<std::size_t>(c.key_dim);
  double du = 0.0;
  for (std::size_t d = 0; d < dim; ++d) {
    grad.add(&Inputs::q, keys + d, c.scale * dy * after[d]);
    ds[d] += c.scale * dy * in.q[keys + d];
    du += ds[d] * in.k[keys + d];
    grad.add(&Inputs::v, value, beta * ds[d] * in.k[keys + d]);
  }
  grad.add(&Inputs::beta, gate, du * in.v[value]);
  for (std::size_t d = 0; d < dim; ++d) {
    grad.add(&Inputs::beta, gate, -du * decay * before[d] * in.k[keys + d]);
    grad.add(&Inputs::k, keys + d, ds[d] * u);
    grad.add(&Inputs::k, keys + d, -beta * du * decay * before[d]);
    ds[d] -= beta * du * in.k[keys + d];
    grad.add(&Inputs::g, gate, ds[d] * decay * before[d]);
    ds[d] *= decay;
  }
}

// The gradients of (dy, dfinal), dfinal of the final state or empty; step by step from the last position on.
inline DeltaGradients gated_delta_rule_backward(const DeltaCase& c, const DeltaInputs<double>& in,
                                                const std::vector<double>& dy,
                                                const std::vector<double>& dfinal) {
  DeltaGradients grad(in);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t head = 0; head < c.value_heads; ++head) {
      const DeltaHead<double> h = delta_head(c, in, b, head);
      const std::size_t state = c.state(b, head);
      std::vector<double> ds(c.state_size());
      for (std::size_t e = 0; e < ds.size() && !dfinal.empty(); ++e) ds[e] = dfinal[state + e];
      for (std::int64_t t = c.length - 1; t >= 0; --t) {
        for (std::int64_t i = 0; i < c.value_dim; ++i) {
          const double upstream = dy[c.value(b, t, head) + static_cast<std::size_t>(i)];
          step_back(c, in, h, b, head, t, i, upstream, &ds[static_cast<std::size_t>(i * c.key_dim)], grad);
        }
      }
      for (std::size_t e = 0; e < ds.size() && !in.initial.empty(); ++e)
        grad.add(&DeltaInputs<double>::initial, state + e, ds[e]);
    }
  }
  return grad;
}

}  // namespace mixtape::oracle
