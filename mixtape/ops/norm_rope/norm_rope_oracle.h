#pragma once

#include "mixtape/ops/rms_norm/rms_norm_oracle.h"
#include "mixtape/ops/rope/rope_oracle.h"

namespace mixtape::oracle {

// How rope/rope_oracle.h turns heads of [B, S, heads, head_dim].
struct HeadTurns {
  std::int64_t heads, head_dim;
  std::vector<double> positions, inv_freq;  // positions [B, S]
  bool is_interleaved;
  double factor;

  template <class T>
  std::vector<T> operator()(const std::vector<T>& x, double sign) const {
    return rope(x, heads, head_dim, positions, inv_freq, is_interleaved, factor, sign);
  }
};

template <class T>
std::vector<T> norm_rope(const std::vector<T>& x, const std::vector<T>& w, double eps,
                         const HeadTurns& turn) {
  return turn(rms_norm(x, w, eps), 1.0);
}

// dx, then dw.
inline std::vector<std::vector<double>> norm_rope_backward(const std::vector<double>& x,
                                                           const std::vector<double>& w, double eps,
                                                           const HeadTurns& turn,
                                                           const std::vector<double>& dy) {
  return rms_norm_backward(x, w, eps, turn(dy, -1.0));
}

}  // namespace mixtape::oracle
