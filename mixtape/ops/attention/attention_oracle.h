#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

struct AttentionCase {
  std::int64_t batch, q_len, k_len, q_heads, kv_heads, head_dim;
  double scale = 1.0;
  bool causal = true;
  std::int64_t window = 0;
  std::vector<std::int64_t> lengths = {};
  bool has_sinks = false;

  std::int64_t q(std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t d) const {
    return ((b * q_len + i) * q_heads + h) * head_dim + d;
  }
  // The key or value that query head h uses.
  std::int64_t k(std::int64_t b, std::int64_t j, std::int64_t h, std::int64_t d) const {
    return ((b * k_len + j) * kv_heads + h / (q_heads / kv_heads)) * head_dim + d;
  }
  std::int64_t p(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return ((b * q_heads + h) * q_len + i) * k_len + j;
  }
  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const std::int64_t position = k_len - q_len + i;
    if (causal && j > position) return false;
    if (window > 0 && j <= position - window) return false;
    return lengths.empty() || j < lengths[b];
  }
};

// Softmax weights [B,Hq,Sq,Sk], 0 where nothing is seen. sinks [Hq], or none.
template <class T>
std::vector<T> attention_weights(const AttentionCase& c, const std::vector<T>& q, const std::vector<T>& k,
                                 const std::vector<T>& sinks) {
  std::vector<T> p(c.batch * c.q_heads * c.q_len * c.k_len);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.q_heads; ++h) {
      for (std::int64_t i = 0; i < c.q_len; ++i) {
        double max = sinks.empty() ? -HUGE_VAL : std::real(sinks[h]);
        for (std::int64_t j = 0; j < c.k_len; ++j) {
          T s = 0;
          for (std::int64_t d = 0; d < c.head_dim; ++d) s += q[c.q(b, i, h, d)] * k[c.k(b, j, h, d)];
          p[c.p(b, h, i, j)] = s * c.scale;
          if (c.sees(b, i, j)) max = std::max(max, std::real(s) * c.scale);
        }
        T sum = sinks.empty() ? T(0) : std::exp(sinks[h] - max);
        for (std::int64_t j = 0; j < c.k_len; ++j) {
          T& weight = p[c.p(b, h, i, j)];
          weight = c.sees(b, i, j) ? std::exp(weight - max) : T(0);
          sum += weight;
        }
        for (std::int64_t j = 0; j < c.k_len; ++j) {
          if (c.sees(b, i, j)) p[c.p(b, h, i, j)] /= sum;
        }
      }
    }
  }
  return p;
}

template <class T>
std::vector<T> attention(const AttentionCase& c, const std::vector<T>& q, const std::vector<T>& k,
                         const std::vector<T>& v, const std::vector<T>& sinks = {}) {
  const std::vector<T> p = attention_weights(c, q, k, sinks);
  std::vector<T> y(q.size());
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.q_heads; ++h) {
      for (std::int64_t i = 0; i < c.q_len; ++i) {
        for (std::int64_t j = 0; j < c.k_len; ++j) {
          for (std::int64_t d = 0; d < c.head_dim; ++d)
            y[c.q(b, i, h, d)] += p[c.p(b, h, i, j)] * v[c.k(b, j, h, d)];
        }
      }
    }
  }
  return y;
}

// {dq, dk, dv, dsinks}
inline std::vector<std::vector<double>> attention_backward(
    const AttentionCase& c, const std::vector<double>& q, const std::vector<double>& k,
    const std::vector<double>& v, const std::vector<double>& dy, const std::vector<double>& sinks = {}) {
  const std::vector<double> p = attention_weights(c, q, k, sinks);
  const std::vector<double> y = attention(c, q, k, v, sinks);
  std::vector<double> dq(q.size()), dk(k.size()), dv(v.size()), dsinks(sinks.size());
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.q_heads; ++h) {
      for (std::int64_t i = 0; i < c.q_len; ++i) {
        double dy_y = 0.0, rest = 1.0;
        for (std::int64_t d = 0; d < c.head_dim; ++d) dy_y += dy[c.q(b, i, h, d)] * y[c.q(b, i, h, d)];
        for (std::int64_t j = 0; j < c.k_len; ++j) rest -= p[c.p(b, h, i, j)];
        if (!sinks.empty()) dsinks[h] -= rest * dy_y;
        for (std::int64_t j = 0; j < c.k_len; ++j) {
          const double weight = p[c.p(b, h, i, j)];
          double dp = 0.0;
          for (std::int64_t d = 0; d < c.head_dim; ++d)
            dp += dy[c.q(b, i, h, d)] * (v[c.k(b, j, h, d)] - y[c.q(b, i, h, d)]);
          for (std::int64_t d = 0; d < c.head_dim; ++d) {
            dq[c.q(b, i, h, d)] += c.scale * weight * dp * k[c.k(b, j, h, d)];
            dk[c.k(b, j, h, d)] += c.scale * weight * dp * q[c.q(b, i, h, d)];
            dv[c.k(b, j, h, d)] += weight * dy[c.q(b, i, h, d)];
          }
        }
      }
    }
  }
  return {dq, dk, dv, dsinks};
}

}  // namespace mixtape::oracle
