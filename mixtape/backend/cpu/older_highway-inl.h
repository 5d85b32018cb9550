// Words of Highway 1.0 that 0.16 lacks, which Ubuntu 22.04 has.

#if defined(MIXTAPE_BACKEND_CPU_OLDER_HIGHWAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_BACKEND_CPU_OLDER_HIGHWAY_INL_H_
#undef MIXTAPE_BACKEND_CPU_OLDER_HIGHWAY_INL_H_
#else
#define MIXTAPE_BACKEND_CPU_OLDER_HIGHWAY_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"

#if HWY_MAJOR == 0
HWY_BEFORE_NAMESPACE();
namespace hwy::HWY_NAMESPACE {

// Not Ne: that is false of NaN.
template <class V>
HWY_API auto IsNaN(V v) {
  return Not(Eq(v, v));
}

template <class V>
HWY_API auto IsFinite(V v) {
  return Lt(Abs(v), Set(DFromV<V>(), std::numeric_limits<TFromV<V>>::infinity()));
}

#if HWY_TARGET != HWY_SCALAR
using Sixteens = ScalableTag<std::uint16_t>;
HWY_API Vec<Sixteens> ConcatOdd(Sixteens d, Vec<Sixteens> high, Vec<Sixteens> low) {
  const Repartition<std::uint32_t, Sixteens> du;
  const RebindToSigned<decltype(du)> di;
  const Half<Sixteens> half;
  const auto odd = [&](Vec<Sixteens> v)
                       HWY_ATTR { return DemoteTo(half, BitCast(di, ShiftRight<16>(BitCast(du, v)))); };
  return Combine(d, odd(high), odd(low));
}
#endif

}  // namespace hwy::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif
