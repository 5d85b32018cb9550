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
// Vector code belongs in plain functions: a lambda handed to parallel_for should only call them; one handed
// to for_each_step carries HWY_ATTR.

#if defined(MIXTAPE_BACKEND_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_BACKEND_CPU_SIMD_INL_H_
#undef MIXTAPE_BACKEND_CPU_SIMD_INL_H_
#else
#define MIXTAPE_BACKEND_CPU_SIMD_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "mixtape/backend/cpu/older_highway-inl.h"
#include "mixtape/backend/cpu/streams.h"
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
using cpu::streams;

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
HWY_INLINE hn::Vec<HalfTag> narrow(Floats v, bf16) {
  const UintTag du;
  const auto u = hn::BitCast(du, v);
#if HWY_ARCH_X86 && \
    HWY_TARGET <= HWY_AVX3  // fewer steps: additions under masks, and one permutation for the upper halves
  const auto odd = _mm512_test_epi32_mask(u.raw, _mm512_set1_epi32(0x10000));
  const auto nan = _mm512_cmp_ps_mask(v.raw, v.raw, _CMP_UNORD_Q);
  auto bits = _mm512_add_epi32(u.raw, _mm512_set1_epi32(0x7fff));
  bits = _mm512_mask_add_epi32(bits, odd, u.raw, _mm512_set1_epi32(0x8000));
  bits = _mm512_mask_or_epi32(bits, nan, u.raw, _mm512_set1_epi32(0x400000));
  alignas(64) static constexpr std::uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15,
                                                           17, 19, 21, 23, 25, 27, 29, 31};
  return hn::Vec<HalfTag>{_mm512_castsi512_si256(_mm512_permutexvar_epi16(_mm512_load_si512(kUpper), bits))};
#else
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto rounded = hn::Add(u, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(u, hn::Set(du, 0x400000u));
  const auto bits = hn::ShiftRight<16>(hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded));
  return hn::DemoteTo(HalfTag(), hn::BitCast(hn::RebindToSigned<UintTag>(), bits));
#endif
}

// As core/f16.h, bit for bit: subnormals are kept, ties go to even, a NaN becomes quiet.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
using Float16Tag = hn::Rebind<hwy::float16_t, FloatTag>;
HWY_INLINE Floats load(const f16* p) {
  return hn::PromoteTo(kF, hn::LoadU(Float16Tag(), reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE hn::Vec<HalfTag> narrow(Floats v, f16) {
  return hn::BitCast(HalfTag(), hn::DemoteTo(Float16Tag(), v));
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
HWY_INLINE hn::Vec<HalfTag> narrow(Floats v, f16) {
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
  return hn::DemoteTo(HalfTag(), bits);
}
#endif

template <class T>
HWY_INLINE void store(Floats v, T* p) {
  hn::StoreU(narrow(v, T()), HalfTag(), reinterpret_cast<std::uint16_t*>(p));
}

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

// A store past the caches, for outputs that leave them before anyone reads them: the line is not read first.
// p is aligned to a vector of T. parallel_for ends with the fence that such stores need.
HWY_INLINE void stream(Floats v, float* p) { hn::Stream(v, kF, p); }
template <class T>
HWY_INLINE void stream(Floats v, T* p) {
  hn::Stream(narrow(v, T()), HalfTag(), reinterpret_cast<std::uint16_t*>(p));
}

// Brings what lies 8 KB further into the second-level cache: hardware looks ahead no further than a page.
template <class T>
HWY_INLINE void fetch_ahead(const T* p) {
  __builtin_prefetch(reinterpret_cast<const char*>(p) + 8192, 0, 2);
}

// Replaces lanes n and above by `other`.
HWY_INLINE Floats keep_first(Floats v, std::size_t n, Floats other) {
  return n >= lanes() ? v : hn::IfThenElse(hn::FirstN(kF, n), v, other);
}

// How for_each_step's body reads and writes: a whole vector, or the `left` elements of the last step.
struct WholeStep {
  bool streams;
  template <class T>
  HWY_INLINE Floats load(const T* p) const {
    if (streams) fetch_ahead(p);
    return HWY_NAMESPACE::load(p);
  }
  // What was loaded before or lies in the caches.
  template <class T>
  HWY_INLINE Floats reload(const T* p) const {
    return HWY_NAMESPACE::load(p);
  }
  template <class T>
  HWY_INLINE void store(Floats v, T* p) const {
    if (streams) return stream(v, p);
    keep(v, p);
  }
  // A store that stays in the caches.
  template <class T>
  HWY_INLINE void keep(Floats v, T* p) const {
    HWY_NAMESPACE::store(v, p);
  }
  // The lanes beyond the end become `other`.
  HWY_INLINE Floats pad(Floats v, Floats) const { return v; }
};
struct LastStep {
  std::size_t left;
  template <class T>
  HWY_INLINE Floats load(const T* p) const {
    return HWY_NAMESPACE::load(p, left);
  }
  template <class T>
  HWY_INLINE Floats reload(const T* p) const {
    return load(p);
  }
  template <class T>
  HWY_INLINE void store(Floats v, T* p) const {
    HWY_NAMESPACE::store(v, p, left);
  }
  template <class T>
  HWY_INLINE void keep(Floats v, T* p) const {
    store(v, p);
  }
  HWY_INLINE Floats pad(Floats v, Floats other) const { return keep_first(v, left, other); }
};

// For a body that adds up: its sums stay in registers.
#ifndef MIXTAPE_SUM_ATTR
#define MIXTAPE_SUM_ATTR HWY_ATTR __attribute__((always_inline))
#endif

// Calls body(i, step) for i = 0, lanes(), ... < n; the body loads and stores through `step`. `streams`: its
// stores go past the caches; then every output starts on a 64-byte boundary.
template <class Body>
HWY_INLINE void for_each_step(std::size_t n, bool streams, const Body& body) {
  std::size_t i = 0;
  for (const WholeStep step{streams}; i + lanes() <= n; i += lanes()) body(i, step);
  if (i < n) body(i, LastStep{n - i});
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

// A load and a look ahead, for loops that read memory and write nothing.
template <class T>
HWY_INLINE Floats load_ahead(const T* p) {
  fetch_ahead(p);
  return load(p);
}

// Reductions over n elements in four strands, which are joined in a fixed order.
template <class T>
float sum_of(const T* x, std::size_t n) {
  Floats s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  const std::size_t step = lanes();
  std::size_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    s0 = hn::Add(s0, load_ahead(x + i));
    s1 = hn::Add(s1, load_ahead(x + i + step));
    s2 = hn::Add(s2, load_ahead(x + i + 2 * step));
    s3 = hn::Add(s3, load_ahead(x + i + 3 * step));
  }
  for (; i < n; i += step) s0 = hn::Add(s0, load(x + i, n - i));
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

template <class A, class B>
float dot_of(const A* a, const B* b, std::size_t n) {
  Floats s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  const std::size_t step = lanes();
  std::size_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    s0 = hn::MulAdd(load_ahead(a + i), load_ahead(b + i), s0);
    s1 = hn::MulAdd(load_ahead(a + i + step), load_ahead(b + i + step), s1);
    s2 = hn::MulAdd(load_ahead(a + i + 2 * step), load_ahead(b + i + 2 * step), s2);
    s3 = hn::MulAdd(load_ahead(a + i + 3 * step), load_ahead(b + i + 3 * step), s3);
  }
  for (; i < n; i += step) s0 = hn::MulAdd(load(a + i, n - i), load(b + i, n - i), s0);
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// The largest; a NaN among them is overlooked or wins.
template <class T>
float max_of(const T* x, std::size_t n) {
  const Floats least = set(-HUGE_VALF);
  Floats m0 = least, m1 = least, m2 = least, m3 = least;
  const std::size_t step = lanes();
  std::size_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    m0 = hn::Max(load_ahead(x + i), m0);
    m1 = hn::Max(load_ahead(x + i + step), m1);
    m2 = hn::Max(load_ahead(x + i + 2 * step), m2);
    m3 = hn::Max(load_ahead(x + i + 3 * step), m3);
  }
  for (; i < n; i += step) m0 = hn::Max(keep_first(load(x + i, n - i), n - i, least), m0);
  return hn::GetLane(hn::MaxOfLanes(kF, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

// p * 2^n for a whole n of [-252, 254], rounded once: in two factors so that neither overflows.
HWY_INLINE Floats times_power_of_two(Floats p, Floats n) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return Floats{_mm512_scalef_ps(p.raw, n.raw)};
#else
  const IntTag di;
  const auto ni = hn::NearestInt(n);
  const auto half = hn::ShiftRight<1>(ni);
  const auto bias = hn::Set(di, 127);
  const Floats low = hn::BitCast(kF, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const Floats high = hn::BitCast(kF, hn::ShiftLeft<23>(hn::Add(hn::Sub(ni, half), bias)));
  return hn::Mul(hn::Mul(p, low), high);
#endif
}

// e^x within 1.01 units in the last place over the whole range: subnormal results are kept, -inf gives 0,
// +inf and overflow give +inf, NaN stays. x = n ln 2 + r with |r| <= ln(2)/2; e^r = 1 + r + r^2 q(r), where q
// is a minimax polynomial (relative error 3.1e-9).
HWY_INLINE Floats exp_of_clamped(Floats x) {
  const Floats whole = set(0x1.8p23f);  // what is added to it is rounded to a whole number
  const Floats n = hn::Sub(hn::MulAdd(x, set(1.44269504088896341f), whole), whole);
  const Floats r0 = hn::NegMulAdd(n, set(0.693359375f), x);
  const Floats r = hn::NegMulAdd(n, set(-2.12194440e-4f), r0);
  Floats q = set(1.3814539877362113e-3f);
  q = hn::MulAdd(q, r, set(8.368745127077302e-3f));
  q = hn::MulAdd(q, r, set(4.166838979069701e-2f));
  q = hn::MulAdd(q, r, set(1.6666520398846993e-1f));
  q = hn::MulAdd(q, r, set(4.9999993432098916e-1f));
  const Floats p = hn::Add(hn::MulAdd(hn::Mul(r, r), q, r), set(1.0f));
  return times_power_of_two(p, n);
}

// Keeps a NaN where minimum and maximum give their second operand if one is NaN.
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
HWY_INLINE Floats keep_nan(Floats y, Floats) { return y; }
#else
HWY_INLINE Floats keep_nan(Floats y, Floats x) { return hn::IfThenElse(hn::IsNaN(x), x, y); }
#endif

HWY_INLINE Floats exp(Floats x) {
  return keep_nan(exp_of_clamped(hn::Max(set(-105.0f), hn::Min(set(90.0f), x))), x);
}
// exp(x) for x <= 0 or NaN.
HWY_INLINE Floats exp_down(Floats x) { return keep_nan(exp_of_clamped(hn::Max(set(-105.0f), x)), x); }
HWY_INLINE float exp_down(float x) { return hn::GetLane(exp_down(set(x))); }

// a / d for d of [1, 2] within 0.51 units in the last place.
HWY_INLINE Floats quotient(Floats a, Floats d) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const Floats inverse{_mm512_rcp14_ps(d.raw)};
  const Floats about = hn::Mul(a, inverse);
  return hn::MulAdd(hn::NegMulAdd(d, about, a), inverse, about);
#else
  return hn::Div(a, d);
#endif
}

HWY_INLINE Floats minus_abs(Floats x) { return hn::Or(x, set(-0.0f)); }

// 1/(1+e^-x) within 2.1 * 2^-23 relative, through e^-|x| so that nothing overflows.
HWY_INLINE Floats sigmoid(Floats x) {
  const Floats e = exp_down(minus_abs(x));
  return quotient(hn::IfThenElse(hn::Lt(x, zero()), e, set(1.0f)), hn::Add(set(1.0f), e));
}

// s(x) and s(-x) = 1 - s(x), without cancellation.
struct Sigmoids {
  Floats of_x, of_minus_x;
};
HWY_INLINE Sigmoids sigmoids(Floats x) {
  const Floats e = exp_down(minus_abs(x));
  const Floats large = quotient(set(1.0f), hn::Add(set(1.0f), e));
  const Floats small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, zero());
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

// sigmoid(x) is 0 below, sigmoid(-x) above: there x is bounded, so that a product with an infinite one is 0.
HWY_INLINE Floats bounded_below(Floats x) { return keep_nan(hn::Max(set(-120.0f), x), x); }
HWY_INLINE Floats bounded(Floats x) { return keep_nan(hn::Min(set(120.0f), bounded_below(x)), x); }

// x s(x), and its slope s(x) (1 + x s(-x)).
HWY_INLINE Floats silu(Floats x) { return hn::Mul(sigmoid(x), bounded_below(x)); }
HWY_INLINE Floats silu(Floats x, Sigmoids s) { return hn::Mul(s.of_x, bounded_below(x)); }
HWY_INLINE Floats silu_slope(Floats x, Sigmoids s) {
  return hn::Mul(s.of_x, hn::MulAdd(s.of_minus_x, bounded(x), set(1.0f)));
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// Instantiates template <class T> void name(const HostCall&) for the value dtypes that the CPU computes with.
// NOLINTBEGIN(bugprone-macro-parentheses): a template's name takes none
#define MIXTAPE_SIMD_KERNEL(name)                                               \
  [[maybe_unused]] void name##_f32(const HostCall& call) { name<float>(call); } \
  [[maybe_unused]] void name##_bf16(const HostCall& call) { name<bf16>(call); } \
  [[maybe_unused]] void name##_f16(const HostCall& call) { name<f16>(call); }
// NOLINTEND(bugprone-macro-parentheses)
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
