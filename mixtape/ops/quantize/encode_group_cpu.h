// The codes of a group, for host kernels. Compiled once per instruction set, like backend/cpu/simd-inl.h.
#if defined(MIXTAPE_OPS_ENCODE_GROUP_CPU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_OPS_ENCODE_GROUP_CPU_H_
#undef MIXTAPE_OPS_ENCODE_GROUP_CPU_H_
#else
#define MIXTAPE_OPS_ENCODE_GROUP_CPU_H_
#endif

#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/quantize/affine.h"
#include "mixtape/ops/quantize/codes_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

HWY_INLINE Floats round_half_away(Floats x) {
  const Floats whole = hn::Trunc(x);
  const auto is_far = hn::Ge(hn::Abs(hn::Sub(x, whole)), set(0.5f));
  return hn::Add(whole, hn::IfThenElseZero(is_far, hn::CopySign(set(1.0f), x)));
}

// As encode of affine.h, bit for bit: w and codes [group size].
inline void encode_group(const float* w, AffineParams p, Rounding rounding, ScaleAndBias fit,
                         std::uint8_t* codes) {
  const Floats scale = set(fit.scale), bias = set(fit.bias), largest = set(static_cast<float>(p.max_code()));
  for (std::size_t i = 0; i < static_cast<std::size_t>(p.group_size); i += lanes()) {
    const Floats exact = hn::Div(hn::Sub(load(w + i), bias), scale);
    const Floats code = rounding == Rounding::gpu ? round_half_away(exact) : hn::Round(exact);
    store_codes(hn::Min(hn::Max(code, zero()), largest), codes + i);
  }
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
