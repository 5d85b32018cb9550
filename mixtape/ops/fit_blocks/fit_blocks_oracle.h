// The search of fit_blocks in straight loops, in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "mixtape/core/f16.h"
#include "mixtape/ops/quantize/block_format.h"

namespace mixtape::oracle {

struct Pair {
  double scale = 0.0, bias = 0.0;
};

struct BlockSolution {
  double d = 0.0, e = 0.0, error = HUGE_VAL;
  std::vector<double> sub_scales, sub_biases;
};

inline double as_f16(double v) { return static_cast<float>(f16(static_cast<float>(v))); }

// One block; weights that count for nothing are 0.
struct BlockProblem {
  const BlockFormat& f;
  std::vector<double> w, h;
  double spread;  // twice the mean square of w, 1 where all are 0

  // What a square error of column c counts.
  double share(std::size_t c) const { return h[c] * std::sqrt(spread + w[c] * w[c]); }
  std::size_t size() const { return static_cast<std::size_t>(f.affine.group_size); }
  std::size_t groups() const { return static_cast<std::size_t>(f.groups); }
  double code(double v, Pair p) const {
    if (p.scale == 0.0) return 0.0;
    return std::clamp(std::nearbyint((v - p.bias) / p.scale), 0.0, static_cast<double>(f.affine.max_code()));
  }
  Pair paired(double scale, double bias) const { return {scale, f.has_biases ? bias : -f.zero_code * scale}; }
  Pair paired(const BlockSolution& s, std::size_t j) const {
    return paired(s.d * s.sub_scales[j], s.e * s.sub_biases[j]);
  }

  // Moments of group j's codes, as counted from the one of 0, and its error.
  struct Moments {
    double pp = 0.0, p = 0.0, one = 0.0, pw = 0.0, w = 0.0, error = 0.0;
  };
  Moments moments(std::size_t j, Pair at) const {
    Moments m;
    for (std::size_t c = j * size(); c < (j + 1) * size(); ++c) {
      const double q = code(w[c], at), p = q - f.zero_code, r = w[c] - (q * at.scale + at.bias);
      const double s = share(c);
      m.pp += s * p * p, m.p += s * p, m.one += s;
      m.pw += s * p * w[c], m.w += s * w[c], m.error += s * r * r;
    }
    return m;
  }
  double error(const BlockSolution& s) const {
    double sum = 0.0;
    for (std::size_t j = 0; j < groups(); ++j) sum += moments(j, paired(s, j)).error;
    return sum;
  }
};

inline Pair least_squares(const BlockProblem& b, const BlockProblem::Moments& m, Pair at) {
  const double alone = m.pp > 0.0 ? m.pw / m.pp : at.scale;
  if (!b.f.has_biases) return b.paired(alone, 0.0);
  const double determinant = m.pp * m.one - m.p * m.p;
  const double solved =
      determinant > m.pp * m.one * 0x1p-20 ? (m.pw * m.one - m.p * m.w) / determinant : at.scale;
  const double bias = (m.w - m.p * solved) / m.one, scale = bias < 0.0 ? solved : alone;
  if (scale > 0.0) return {scale, std::min(bias, 0.0)};
  return {at.scale, std::min((m.w - m.p * at.scale) / m.one, 0.0)};
}

struct Extremes {
  double low = HUGE_VAL, high = -HUGE_VAL, mean = 0.0;
};
inline Extremes extremes(const BlockProblem& b, std::size_t j) {
  Extremes x;
  double total = 0.0;
  for (std::size_t c = j * b.size(); c < (j + 1) * b.size(); ++c) {
    if (b.h[c] == 0.0) continue;
    x.low = std::min(x.low, b.w[c]), x.high = std::max(x.high, b.w[c]);
    x.mean += b.h[c] * b.w[c], total += b.h[c];
  }
  x.mean /= total;
  return x;
}

inline Pair range(const BlockProblem& b, double from, double to) {
  const double bias = std::min(from, 0.0);
  return {std::max(to - bias, 0.0) / b.f.affine.max_code(), bias};
}
inline Pair plain_pair(const BlockProblem& b, const Extremes& x) {
  if (b.f.has_biases) return range(b, x.low, x.high);
  return b.paired((std::abs(x.low) < std::abs(x.high) ? x.high : x.low) / -b.f.zero_code, 0.0);
}

// A group by itself: two turns from each start.
inline Pair fit_alone(const BlockProblem& b, std::size_t j) {
  const Extremes x = extremes(b, j);
  const Pair plain = plain_pair(b, x);
  Pair best = plain;
  double error = HUGE_VAL;
  const auto follow = [&](Pair at) {
    for (int turn = 0; turn < 2; ++turn) {
      const auto m = b.moments(j, at);
      if (m.error < error) error = m.error, best = at;
      at = least_squares(b, m, at);
    }
  };
  const double drop = std::min(0.65, 4.0 / (b.f.affine.max_code() + 1)) / 3.0;
  for (int i = 0; b.f.has_biases && i < 4; ++i) {
    for (int k = 0; k < 4; ++k)
      follow(
          range(b, x.mean + (x.low - x.mean) * (1 - i * drop), x.mean + (x.high - x.mean) * (1 - k * drop)));
  }
  for (int i = 0; !b.f.has_biases && i < 8; ++i) {
    const double scale = plain.scale * (1.0 + (0.9 - 2.5 * i / 7) / b.f.zero_code);
    follow(b.paired(scale, 0.0));
    follow(b.paired(-scale, 0.0));
  }
  return best;
}

inline double whole(double v, double step, SubGrid grid) {
  if (!grid.is_stored()) return 1.0;
  const double lowest = grid.lowest, highest = grid.highest;
  return std::clamp(step == 0.0 ? 0.0 : std::nearbyint(v / step), lowest, highest);
}

inline BlockSolution on_grid(const BlockProblem& b, const std::vector<Pair>& pairs, double part) {
  BlockSolution s;
  double scale = 0.0, bias = 0.0;
  for (const Pair& p : pairs) {
    if (std::abs(p.scale) > std::abs(scale)) scale = p.scale;
    bias = std::min(bias, p.bias);
  }
  const double end = b.f.scales.lowest < 0 ? b.f.scales.lowest : b.f.scales.highest;
  s.d = as_f16(b.f.scales.is_stored() ? scale / (part * end) : scale);
  if (b.f.has_biases) s.e = as_f16(b.f.biases.is_stored() ? bias / (part * b.f.biases.highest) : bias);
  for (const Pair& p : pairs) {
    s.sub_scales.push_back(whole(p.scale, s.d, b.f.scales));
    s.sub_biases.push_back(whole(p.bias, s.e, b.f.biases));
  }
  return s;
}

// The whole numbers of least error for group j's codes.
inline void choose_whole(const BlockProblem& b, const BlockProblem::Moments& m, std::size_t j,
                         BlockSolution& s) {
  if (m.pp * s.d == 0.0 && !b.f.has_biases) return;
  if (!b.f.has_biases) {
    s.sub_scales[j] = whole(m.pw / m.pp, s.d, b.f.scales);
    return;
  }
  const auto error = [&](double sub_scale, double sub_bias) {
    const double scale = s.d * sub_scale, bias = s.e * sub_bias;
    return m.pp * scale * scale + 2 * m.p * scale * bias + m.one * bias * bias - 2 * m.pw * scale -
           2 * m.w * bias;
  };
  const double old_scale = s.sub_scales[j], old_bias = s.sub_biases[j], highest = b.f.biases.highest;
  double best = error(old_scale, old_bias);
  for (int step = -1; step <= 1; ++step) {
    const double other = b.f.biases.is_stored() ? std::clamp(old_bias + step, 0.0, highest) : old_bias;
    const double found =
        m.pp * s.d == 0.0 ? old_scale : whole((m.pw - m.p * s.e * other) / m.pp, s.d, b.f.scales);
    if (error(found, other) >= best) continue;
    best = error(found, other);
    s.sub_scales[j] = found, s.sub_biases[j] = other;
  }
}

inline void solve_outer(const BlockProblem& b, const std::vector<BlockProblem::Moments>& m,
                        BlockSolution& s) {
  double dd = 0.0, de = 0.0, ee = 0.0, rd = 0.0, re = 0.0;
  for (std::size_t j = 0; j < m.size(); ++j) {
    const double scale = s.sub_scales[j], bias = s.sub_biases[j];
    dd += m[j].pp * scale * scale, de += m[j].p * scale * bias, ee += m[j].one * bias * bias;
    rd += m[j].pw * scale, re += m[j].w * bias;
  }
  const double alone = dd > 0.0 ? rd / dd : s.d;
  if (!b.f.has_biases) {
    s.d = as_f16(alone);
    return;
  }
  const double determinant = dd * ee - de * de;
  const bool is_solvable = determinant > dd * ee * 0x1p-20;
  const double e = is_solvable ? (dd * re - de * rd) / determinant : 0.0;
  const double d = is_solvable && e < 0.0 ? (rd * ee - de * re) / determinant : alone;
  if (!(d > 0.0)) return;
  s.d = as_f16(d);
  s.e = as_f16(std::min(e, 0.0));
}

inline void follow(const BlockProblem& b, BlockSolution at, int turns, BlockSolution& best) {
  for (int turn = 0; turn < turns; ++turn) {
    BlockSolution next = at;
    std::vector<BlockProblem::Moments> m;
    at.error = 0.0;
    for (std::size_t j = 0; j < b.groups(); ++j) {
      m.push_back(b.moments(j, b.paired(at, j)));
      at.error += m[j].error;
      choose_whole(b, m[j], j, next);
    }
    if (at.error < best.error) best = at;
    solve_outer(b, m, next);
    at = next;
  }
}

inline void try_neighbours(const BlockProblem& b, std::size_t j, BlockSolution& s) {
  const BlockSolution middle = s;
  double error = b.moments(j, b.paired(s, j)).error;
  const int reach = b.f.biases.is_stored() ? 1 : 0;
  for (int i = -1; i <= 1; ++i) {
    for (int k = -reach; k <= reach; ++k) {
      BlockSolution tried = middle;
      tried.sub_scales[j] =
          std::clamp(middle.sub_scales[j] + i, double{1} * b.f.scales.lowest, double{1} * b.f.scales.highest);
      if (reach > 0)
        tried.sub_biases[j] = std::clamp(middle.sub_biases[j] + k, 0.0, double{1} * b.f.biases.highest);
      const double found = b.moments(j, b.paired(tried, j)).error;
      if (found >= error) continue;
      error = found;
      s.sub_scales[j] = tried.sub_scales[j], s.sub_biases[j] = tried.sub_biases[j];
    }
  }
}

inline BlockSolution plain_block(const BlockProblem& b) {
  std::vector<Pair> pairs;
  for (std::size_t j = 0; j < b.groups(); ++j) pairs.push_back(plain_pair(b, extremes(b, j)));
  BlockSolution s = on_grid(b, pairs, 1.0);
  s.error = b.error(s);
  return s;
}

inline BlockSolution fit_block(const BlockProblem& b) {
  BlockSolution best = plain_block(b);
  best.error = HUGE_VAL;
  follow(b, BlockSolution(best), 2, best);
  std::vector<Pair> pairs;
  for (std::size_t j = 0; j < b.groups(); ++j) pairs.push_back(fit_alone(b, j));
  for (int i = 0; i < 4; ++i) follow(b, on_grid(b, pairs, 1.0 - 0.04 * i), 2, best);
  follow(b, BlockSolution(best), 3, best);
  if (!b.f.scales.is_stored()) return best;
  BlockSolution near = best;
  for (std::size_t j = 0; j < b.groups(); ++j) try_neighbours(b, j, near);
  follow(b, near, 3, best);
  return best;
}

inline double spread_of(const std::vector<double>& w) {
  double sum = 0.0;
  for (const double v : w) sum += v * v;
  return sum > 0.0 ? 2.0 * sum / static_cast<double>(w.size()) : 1.0;
}

// Importance of a block's columns as the fit takes it: all alike where all of them are 0.
inline std::vector<double> block_importance(std::vector<double> h, std::size_t group_size) {
  const double largest = *std::max_element(h.begin(), h.end());
  for (std::size_t i = 0; i < h.size(); i += group_size) {
    const auto from = h.begin() + static_cast<std::ptrdiff_t>(i),
               to = from + static_cast<std::ptrdiff_t>(group_size);
    if (largest == 0.0) std::fill(from, to, 1.0);
    if (*std::max_element(from, to) == 0.0) std::fill(from, to, largest * 0x1p-24);
  }
  return h;
}

}  // namespace mixtape::oracle
