// Codes in registers to bytes, for host kernels. Compiled once per instruction set, like
// backend/cpu/simd-inl.h.
#if defined(MIXTAPE_OPS_CODES_CPU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_OPS_CODES_CPU_H_
#undef MIXTAPE_OPS_CODES_CPU_H_
#else
#define MIXTAPE_OPS_CODES_CPU_H_
#endif

#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Whole numbers of [0, 255], one byte each.
HWY_INLINE void store_codes(Floats codes, std::uint8_t* to) {
  const hn::Rebind<std::uint8_t, FloatTag> bytes;
  hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(IntTag(), codes)), bytes, to);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
