#pragma once

#include "mixtape/ops/softmax/softmax_oracle.h"
#include "mixtape/ops/top_k/top_k_oracle.h"

namespace mixtape::oracle {

// Weights [T,k].
template <class T>
std::vector<T> moe_route(const std::vector<T>& logits, std::int64_t experts, std::int64_t k, bool normalise) {
  const std::vector<T> p = softmax(logits, experts);
  const std::vector<std::int64_t> indices = top_k_indices(logits, experts, k);
  std::vector<T> weights(indices.size());
  for (std::size_t first = 0; first < indices.size(); first += k) {
    T sum = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      sum += weights[first + j] = p[static_cast<std::int64_t>(first) / k * experts + indices[first + j]];
    }
    for (std::int64_t j = 0; normalise && j < k; ++j) weights[first + j] /= sum;
  }
  return weights;
}

inline std::vector<double> moe_route_backward(const std::vector<double>& logits,
                                              const std::vector<double>& dweights, std::int64_t experts,
                                              std::int64_t k, bool normalise) {
  const std::vector<double> p = softmax(logits, experts);
  const std::vector<double> w = moe_route(logits, experts, k, normalise);
  const std::vector<std::int64_t> indices = top_k_indices(logits, experts, k);
  std::vector<double> dp(logits.size());
  for (std::size_t first = 0; first < indices.size(); first += k) {
    const std::int64_t row = static_cast<std::int64_t>(first) / k * experts;
    double sum = 0.0, dot = 0.0;
    for (std::int64_t j = 0; j < k; ++j) {
      sum += p[row + indices[first + j]];
      dot += dweights[first + j] * w[first + j];
    }
    for (std::int64_t j = 0; j < k; ++j) {
      const double d = dweights[first + j];
      dp[row + indices[first + j]] = normalise ? (d - dot) / sum : d;
    }
  }
  return softmax_backward(p, dp, experts);
}

// inverse[s]: where slot s stands among the slots sorted by expert.
inline std::vector<std::int64_t> moe_inverse(const std::vector<std::int64_t>& indices, std::int64_t experts) {
  std::vector<std::int64_t> inverse(indices.size());
  std::int64_t place = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    for (std::size_t s = 0; s < indices.size(); ++s) {
      if (indices[s] == e) inverse[s] = place++;
    }
  }
  return inverse;
}

template <class T>
std::vector<T> moe_dispatch(const std::vector<T>& x, const std::vector<std::int64_t>& inverse, std::int64_t k,
                            std::int64_t cols) {
  std::vector<T> y(x.size() * k);
  for (std::size_t s = 0; s < inverse.size(); ++s) {
    for (std::int64_t c = 0; c < cols; ++c) y[inverse[s] * cols + c] = x[s / k * cols + c];
  }
  return y;
}

inline std::vector<double> moe_dispatch_backward(const std::vector<double>& dy,
                                                 const std::vector<std::int64_t>& inverse, std::int64_t k,
                                                 std::int64_t cols) {
  std::vector<double> dx(dy.size() / k);
  for (std::size_t s = 0; s < inverse.size(); ++s) {
    for (std::int64_t c = 0; c < cols; ++c) dx[s / k * cols + c] += dy[inverse[s] * cols + c];
  }
  return dx;
}

template <class T>
std::vector<T> moe_combine(const std::vector<T>& x, const std::vector<T>& weights,
                           const std::vector<std::int64_t>& inverse, std::int64_t k) {
  const std::size_t cols = inverse.empty() ? 0 : x.size() / inverse.size();
  std::vector<T> y(x.size() / static_cast<std::size_t>(k));
  for (std::size_t s = 0; s < inverse.size(); ++s) {
    for (std::size_t c = 0; c < cols; ++c) {
      y[s / static_cast<std::size_t>(k) * cols + c] += weights[s] * x[inverse[s] * cols + c];
    }
  }
  return y;
}

// {dx, dweights}
inline std::vector<std::vector<double>> moe_combine_backward(const std::vector<double>& x,
                                                             const std::vector<double>& weights,
                                                             const std::vector<std::int64_t>& inverse,
                                                             std::int64_t k, const std::vector<double>& dy) {
  const std::size_t cols = inverse.empty() ? 0 : x.size() / inverse.size();
  std::vector<double> dx(x.size()), dweights(weights.size());
  for (std::size_t s = 0; s < inverse.size(); ++s) {
    for (std::size_t c = 0; c < cols; ++c) {
      const double d = dy[s / static_cast<std::size_t>(k) * cols + c];
      dx[inverse[s] * cols + c] = weights[s] * d;
      dweights[s] += x[inverse[s] * cols + c] * d;
    }
  }
  return {dx, dweights};
}

}  // namespace mixtape::oracle
