// SIMD words for host kernels, on top of Highway: values are f32 in registers whatever their storage type.
//
// A kernel file is compiled once per instruction set:
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "mixtape/ops/softmax/softmax_cpu.cpp"
//   #include "hwy/foreach_target.h"  // IWYU pragma: keep
//   #include "mixtape/backend/cpu/simd-inl.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace mixtape::HWY_NAMESPACE {
//   template <class T> void softmax_forward(const HostCall& call) { ... }
//   MIXTAPE_SIMD_KERNEL(softmax_forward)
//   }
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE
//   namespace mixtape { MIXTAPE_REGISTER_SIMD_KERNEL(softmax_forward) }
//   #endif
// Vector code belongs in plain functions: a lambda handed to parallel_for should only call them.

#if defined(MIXTAPE_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_BACKEND_CPU_SIMD_INL_H_
#undef MIXTAPE_BACKEND_CPU_SIMD_INL_H_
#else
#define MIXTAPE_BACKEND_CPU_SIMD_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"
#include "mixtape/runtime/kernel_registry.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using IntTag = hn::RebindToSigned<FloatTag>;
using UintTag = hn::RebindToUnsigned<FloatTag>;
using HalfTag = hn::Rebind<std::uint16_t, FloatTag>;
using Floats = hn::Vec<FloatTag>;

inline constexpr FloatTag kF;

HWY_INLINE std::size_t lanes() { return hn::Lanes(kF); }
HWY_INLINE Floats set(float value) { return hn::Set(kF, value); }
HWY_INLINE Floats zero() { return hn::Zero(kF); }

HWY_INLINE Floats load(const float* p) { return hn::LoadU(kF, p); }
HWY_INLINE void store(Floats v, float* p) { hn::StoreU(v, kF, p); }

HWY_INLINE Floats load(const bf16* p) {
  const auto bits = hn::LoadU(HalfTag(), reinterpret_cast<const std::uint16_t*>(p));
  return hn::BitCast(kF, hn::ShiftLeft<16>(hn::PromoteTo(UintTag(), bits)));
}

// To nearest even; every NaN becomes a quiet NaN of the same sign (as core/bf16.h).
HWY_INLINE void store(Floats v, bf16* p) {
  const UintTag du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu))));
  const auto quiet = hn::Or(hn::ShiftRight<16>(u), hn::Set(du, 0x40u));
  const auto bits = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded);
  const auto half = hn::DemoteTo(HalfTag(), hn::BitCast(hn::RebindToSigned<UintTag>(), bits));
  hn::StoreU(half, HalfTag(), reinterpret_cast<std::uint16_t*>(p));
}

// As core/f16.h, bit for bit: subnormals are kept, ties go to even, a NaN becomes quiet.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
using Float16Tag = hn::Rebind<hwy::float16_t, FloatTag>;
HWY_INLINE Floats load(const f16* p) {
  return hn::PromoteTo(kF, hn::LoadU(Float16Tag(), reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE void store(Floats v, f16* p) {
  hn::StoreU(hn::DemoteTo(Float16Tag(), v), Float16Tag(), reinterpret_cast<hwy::float16_t*>(p));
}
#else
HWY_INLINE Floats load(const f16* p) {
  const UintTag du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(HalfTag(), reinterpret_cast<const std::uint16_t*>(p)));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu)));
  const auto scaled = hn::BitCast(du, hn::Mul(hn::BitCast(kF, magnitude), set(0x1p112f)));
  const auto special = hn::Or(magnitude, hn::Set(du, 0x7f800000u));
  const auto is_finite = hn::Lt(magnitude, hn::Set(du, 0x0f800000u));
  return hn::BitCast(kF, hn::Or(sign, hn::IfThenElse(is_finite, scaled, special)));
}
HWY_INLINE void store(Floats v, f16* p) {
  const UintTag du;
  const auto u = hn::BitCast(du, v);
  const auto sign = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 0x8000u));
  const auto magnitude = hn::And(u, hn::Set(du, 0x7fffffffu));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rounded = hn::Add(magnitude, hn::Add(odd, hn::Set(du, 0xfffu)));
  const auto normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, 0x38000000u)));
  // Adding 0.5 puts a subnormal's last bit last.
  const auto aligned = hn::BitCast(du, hn::Add(hn::BitCast(kF, magnitude), set(0.5f)));
  const auto subnormal = hn::Sub(aligned, hn::Set(du, 0x3f000000u));
  const auto payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 0x1ffu));
  auto half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x38800000u)), subnormal, normal);
  half = hn::IfThenElse(hn::Lt(magnitude, hn::Set(du, 0x477ff000u)), half, hn::Set(du, 0x7c00u));
  half = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), hn::Or(payload, hn::Set(du, 0x7e00u)), half);
  const auto bits = hn::BitCast(hn::RebindToSigned<UintTag>(), hn::Or(sign, half));
  hn::StoreU(hn::DemoteTo(HalfTag(), bits), HalfTag(), reinterpret_cast<std::uint16_t*>(p));
}
#endif

// The first n lanes (all of them where n >= lanes()); the others are 0. Never touches memory beyond n
// elements.
template <class T>
HWY_INLINE Floats load(const T* p, std::size_t n) {
  if (HWY_LIKELY(n >= lanes())) return load(p);
  HWY_ALIGN T tail[HWY_MAX_BYTES / sizeof(float)] = {};
  for (std::size_t i = 0; i < n; ++i) tail[i] = p[i];
  return load(static_cast<const T*>(tail));
}
template <class T>
HWY_INLINE void store(Floats v, T* p, std::size_t n) {
  if (HWY_LIKELY(n >= lanes())) return store(v, p);
  HWY_ALIGN T tail[HWY_MAX_BYTES / sizeof(float)];
  store(v, static_cast<T*>(tail));
  for (std::size_t i = 0; i < n; ++i) p[i] = tail[i];
}

// Replaces lanes n and above by `other`.
HWY_INLINE Floats keep_first(Floats v, std::size_t n, Floats other) {
  return n >= lanes() ? v : hn::IfThenElse(hn::FirstN(kF, n), v, other);
}

HWY_INLINE float sum_lanes(Floats v) { return hn::GetLane(hn::SumOfLanes(kF, v)); }

// A maximum that keeps a NaN of either side.
HWY_INLINE Floats max_nan(Floats a, Floats b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::Lt(a, b), b, hn::IfThenElse(hn::IsNaN(b), b, a)));
}
HWY_INLINE float max_lanes_nan(Floats v) {
  if (!hn::AllFalse(kF, hn::IsNaN(v)))
    return hn::GetLane(hn::SumOfLanes(kF, hn::IfThenElseZero(hn::IsNaN(v), v)));
  return hn::GetLane(hn::MaxOfLanes(kF, v));
}

// e^x within 1.01 units in the last place over the whole range: subnormal results are kept, -inf gives 0,
// +inf and overflow give +inf, NaN stays. x = n ln 2 + r with |r| <= ln(2)/2; e^r = 1 + r + r^2 q(r), where q
// is a minimax polynomial (relative error 3.1e-9); 2^n in two factors so that neither overflows.
HWY_INLINE Floats exp(Floats x) {
  const IntTag di;
  const Floats clamped = hn::Max(hn::Min(x, set(90.0f)), set(-105.0f));
  const Floats n = hn::Round(hn::Mul(clamped, set(1.44269504088896341f)));
  const Floats r0 = hn::NegMulAdd(n, set(0.693359375f), clamped);
  const Floats r = hn::NegMulAdd(n, set(-2.12194440e-4f), r0);
  Floats q = set(1.3814539877362113e-3f);
  q = hn::MulAdd(q, r, set(8.368745127077302e-3f));
  q = hn::MulAdd(q, r, set(4.166838979069701e-2f));
  q = hn::MulAdd(q, r, set(1.6666520398846993e-1f));
  q = hn::MulAdd(q, r, set(4.9999993432098916e-1f));
  const Floats p = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), set(1.0f));
  const auto ni = hn::NearestInt(n);
  const auto half = hn::ShiftRight<1>(ni);
  const auto bias = hn::Set(di, 127);
  const Floats low = hn::BitCast(kF, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Floats high = hn::BitCast(kF, hn::ShiftLeft<23>(hn::Add(hn::Sub(ni, half), bias)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(hn::Mul(p, low), high));
}

// 1/(1+e^-x) within 2.1 * 2^-23 relative, through e^-|x| so that nothing overflows.
HWY_INLINE Floats sigmoid(Floats x) {
  const Floats e = exp(hn::Neg(hn::Abs(x)));
  const Floats denominator = hn::Add(set(1.0f), e);
  return hn::Div(hn::IfThenElse(hn::Lt(x, zero()), e, set(1.0f)), denominator);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// Instantiates template <class T> void name(const HostCall&) for the value dtypes that the CPU computes with.
#define MIXTAPE_SIMD_KERNEL(name)                                               \
  [[maybe_unused]] void name##_f32(const HostCall& call) { name<float>(call); } \
  [[maybe_unused]] void name##_bf16(const HostCall& call) { name<bf16>(call); } \
  [[maybe_unused]] void name##_f16(const HostCall& call) { name<f16>(call); }
#endif  // include guard per target

#ifndef MIXTAPE_REGISTER_SIMD_KERNEL
#define MIXTAPE_REGISTER_SIMD_ONE(name) \
  HWY_EXPORT(name);                     \
  MIXTAPE_HOST_KERNEL(#name, [](const ::mixtape::HostCall& call) { HWY_DYNAMIC_DISPATCH(name)(call); });
// Enters name_f32, name_bf16 and name_f16 in the table of host kernels; the instruction set is chosen at the
// first call.
#define MIXTAPE_REGISTER_SIMD_KERNEL(name) \
  MIXTAPE_REGISTER_SIMD_ONE(name##_f32)    \
  MIXTAPE_REGISTER_SIMD_ONE(name##_bf16)   \
  MIXTAPE_REGISTER_SIMD_ONE(name##_f16)
#endif
