// The search of fit_affine for host kernels. Compiled once per instruction set, like backend/cpu/simd-inl.h.
#if defined(MIXTAPE_OPS_FIT_AFFINE_SEARCH_CPU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_OPS_FIT_AFFINE_SEARCH_CPU_H_
#undef MIXTAPE_OPS_FIT_AFFINE_SEARCH_CPU_H_
#else
#define MIXTAPE_OPS_FIT_AFFINE_SEARCH_CPU_H_
#endif

#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/fit_affine/fit_affine_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Every lane fits a group of its own: as many rows, the same columns.

struct Pair {
  Floats scale, bias;
};

// With p the code nearest to the weighted mean, r the residuals w - (code*scale + bias), all sums weighted by h.
struct Sums {
  Floats error;            // r^2
  Floats p, r, qr, q, qq;  // q: code - p
};

HWY_INLINE Floats either(hn::Mask<FloatTag> mask, Floats yes, Floats no) {
  return hn::IfThenElse(mask, yes, no);
}

// Scales and biases are of type S; within the search w and they are multiplied by a power of two, 1/unit, that
// brings the largest weight that counts near 1, so that no square overflows or vanishes.
template <class S>
struct GroupSearch {
  const float* w;  // [size, lanes]; 0 where the importance is 0
  const float* h;  // [size]
  std::size_t size;
  float total;  // sum of h
  Floats unit, inverse_unit;
  Floats mean, low, high;  // of the weights that count
  Floats largest;          // code
  Floats error;            // of the best pair so far
  Pair best;

  HWY_INLINE Floats stored(Floats v) const {
    HWY_ALIGN S rounded[HWY_MAX_BYTES / sizeof(float)];
    store(hn::Mul(v, unit), static_cast<S*>(rounded));
    return hn::Mul(load(static_cast<const S*>(rounded)), inverse_unit);
  }
  HWY_INLINE Floats code(Floats v, Pair to) const {
    const Floats exact = hn::Div(hn::Sub(v, to.bias), to.scale);
    return hn::Min(hn::Max(hn::Round(exact), zero()), largest);
  }
  // `wanted`, but for lanes where it isn't a pair that decodes.
  HWY_INLINE Pair usable(Pair wanted, Pair other) const {
    const auto is_usable =
        hn::And(hn::And(hn::IsFinite(wanted.scale), hn::IsFinite(wanted.bias)), hn::Ne(wanted.scale, zero()));
    return {either(is_usable, wanted.scale, other.scale), either(is_usable, wanted.bias, other.bias)};
  }

  HWY_INLINE Sums sums(Pair at) const {
    Sums s{zero(), code(mean, at), zero(), zero(), zero(), zero()};
    for (std::size_t c = 0; c < size; ++c) {
      const Floats v = load(w + c * lanes()), weight = set(h[c]);
      const Floats q = code(v, at), from_p = hn::Sub(q, s.p);
      const Floats r = hn::Sub(v, hn::Add(hn::Mul(q, at.scale), at.bias));
      const Floats hr = hn::Mul(weight, r), hq = hn::Mul(weight, from_p);
      s.error = hn::Add(s.error, hn::Mul(hr, r));
      s.r = hn::Add(s.r, hr);
      s.qr = hn::Add(s.qr, hn::Mul(hr, from_p));
      s.q = hn::Add(s.q, hq);
      s.qq = hn::Add(s.qq, hn::Mul(hq, from_p));
    }
    return s;
  }

  HWY_INLINE void keep_better(const Sums& s, Pair at) {
    const auto is_better = hn::Lt(s.error, error);
    error = either(is_better, s.error, error);
    best = {either(is_better, at.scale, best.scale), either(is_better, at.bias, best.bias)};
  }

  // The pair with that scale and the bias that fits it best for the codes of `at`.
  HWY_INLINE Pair refit_bias(const Sums& s, Pair at, Floats scale) const {
    const Floats change = hn::Sub(scale, at.scale);
    const Floats shift = hn::Div(hn::Sub(s.r, hn::Mul(change, s.q)), set(total));
    return usable({scale, stored(hn::Sub(hn::Add(at.bias, shift), hn::Mul(change, s.p)))}, at);
  }
  // Least squares for the codes of `at`: the same scale where all codes that count are the same one.
  HWY_INLINE Pair least_squares(const Sums& s, Pair at) const {
    const Floats moment = hn::Mul(set(total), s.qq);
    const Floats determinant = hn::Sub(moment, hn::Mul(s.q, s.q));
    const Floats change = hn::Div(hn::Sub(hn::Mul(set(total), s.qr), hn::Mul(s.q, s.r)), determinant);
    const auto is_solvable = hn::Gt(determinant, hn::Mul(moment, set(0x1p-20f)));
    return refit_bias(s, at, stored(hn::Add(at.scale, hn::IfThenElseZero(is_solvable, change))));
  }

  void follow(Pair at, int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      const Sums s = sums(at);
      keep_better(s, at);
      if (turn + 1 < turns) at = least_squares(s, at);
    }
  }

  // Code 0 at the end that is nearer to 0, whose rounding moves the codes least; the last code at the other.
  HWY_INLINE Pair between(Floats from, Floats to) const {
    const Floats bias = stored(either(hn::Le(hn::Abs(from), hn::Abs(to)), from, to));
    const Floats up = hn::Sub(to, bias), down = hn::Sub(from, bias);
    const Floats range = either(hn::Ge(hn::Abs(up), hn::Abs(down)), up, down);
    return usable({stored(hn::Div(range, largest)), bias}, best);
  }

  // From `best`, MLX's rule. In a group of which next to nothing counts its error may overflow.
  void run(float drop, float nudge_unit) {
    error = set(HUGE_VALF);
    follow(best, kTurns);
    for (int i = 0; i < kFractions; ++i) {
      const Floats from =
          hn::Add(mean, hn::Mul(hn::Sub(low, mean), set(1.0f - static_cast<float>(i) * drop)));
      for (int j = 0; j < kFractions; ++j) {
        const Floats part = set(1.0f - static_cast<float>(j) * drop);
        follow(between(from, hn::Add(mean, hn::Mul(hn::Sub(high, mean), part))), kTurns);
      }
    }
    follow(best, kLastTurns);
    nudge(nudge_unit);
  }

  // The rounding of a scale costs most at the outer codes: its neighbours, with biases to match.
  void nudge(float unit_of_scale) {
    const Pair at = best;
    const Sums s = sums(at);
    for (int k = -kNudges; k <= kNudges; ++k) {
      if (k == 0) continue;
      const Floats scale = hn::Mul(at.scale, set(1.0f + static_cast<float>(k) * unit_of_scale));
      follow(refit_bias(s, at, stored(scale)), 1);
    }
  }
};

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
