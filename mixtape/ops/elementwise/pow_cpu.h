// Powers and logarithms lane by lane, through the C library: exact to a unit, and right at every edge.
#if defined(MIXTAPE_OPS_ELEMENTWISE_POW_CPU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_OPS_ELEMENTWISE_POW_CPU_H_
#undef MIXTAPE_OPS_ELEMENTWISE_POW_CPU_H_
#else
#define MIXTAPE_OPS_ELEMENTWISE_POW_CPU_H_
#endif

#include <cmath>

#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// a^b.
inline HWY_NOINLINE Floats pow_lanes(Floats a, Floats b) {
  HWY_ALIGN float base[hn::MaxLanes(kF)], exponent[hn::MaxLanes(kF)];
  hn::Store(a, kF, base);
  hn::Store(b, kF, exponent);
  for (std::size_t i = 0; i < lanes(); ++i) base[i] = std::pow(base[i], exponent[i]);
  return hn::Load(kF, base);
}

inline HWY_NOINLINE Floats log_lanes(Floats a) {
  HWY_ALIGN float values[hn::MaxLanes(kF)];
  hn::Store(a, kF, values);
  for (std::size_t i = 0; i < lanes(); ++i) values[i] = std::log(values[i]);
  return hn::Load(kF, values);
}

// d a^b / da = b a^(b-1), 0 for b = 0.
HWY_INLINE Floats pow_slope(Floats a, Floats b) {
  const Floats slope = hn::Mul(b, pow_lanes(a, hn::Sub(b, set(1.0f))));
  return hn::IfThenZeroElse(hn::Eq(b, zero()), slope);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
