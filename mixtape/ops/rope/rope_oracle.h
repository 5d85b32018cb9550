#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace mixtape::oracle {

// x [B, S, H, head_dim]; positions [B, S]. sign -1 gives the gradient.
template <class T>
std::vector<T> rope(const std::vector<T>& x, std::int64_t heads, std::int64_t head_dim,
                    const std::vector<double>& positions, const std::vector<double>& inv_freq,
                    bool is_interleaved, double factor, double sign) {
  std::vector<T> y = x;
  const auto pairs = static_cast<std::int64_t>(inv_freq.size());
  for (std::size_t token = 0; token < positions.size(); ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t at = (static_cast<std::int64_t>(token) * heads + head) * head_dim;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle = sign * positions[token] * inv_freq[i];
        const std::int64_t a = at + (is_interleaved ? 2 * i : i);
        const std::int64_t b = at + (is_interleaved ? 2 * i + 1 : i + pairs);
        y[a] = factor * (x[a] * std::cos(angle) - x[b] * std::sin(angle));
        y[b] = factor * (x[b] * std::cos(angle) + x[a] * std::sin(angle));
      }
    }
  }
  return y;
}

}  // namespace mixtape::oracle
