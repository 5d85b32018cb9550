#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

namespace mixtape {

// A NaN keeps its upper bits, but is quiet.
template <class To>
MIXTAPE_DEVICE To converted(float v);
template <>
MIXTAPE_DEVICE float converted<float>(float v) {
  return v != v ? float_of(bits_of(v) | 0x400000u) : v;
}
template <>
MIXTAPE_DEVICE bf16 converted<bf16>(float v) {
  bf16 y = from_f32<bf16>(v);
  if (v != v) y.bits = static_cast<std::uint16_t>((bits_of(v) >> 16) | 0x40u);
  return y;
}

template <>
MIXTAPE_DEVICE f16 converted<f16>(float v) {
  f16 y = from_f32<f16>(v);
  const std::uint32_t bits = bits_of(v);
  if (v != v)
    y.bits = static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | 0x7e00u | ((bits >> 13) & 0x1ffu));
  return y;
}

// to_f32, which may change the bits of a NaN of f16.
template <class From>
MIXTAPE_DEVICE float widened(From v) {
  return to_f32(v);
}
template <>
MIXTAPE_DEVICE float widened<f16>(f16 v) {
  const std::uint32_t bits = v.bits;
  if ((bits & 0x7fffu) <= 0x7c00u) return to_f32(v);
  return float_of((bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x3ffu) << 13);
}

// Four elements at a time, four times per thread.
template <class From, class To>
MIXTAPE_DEVICE void cast(const UnaryParams& p, Global<const From> x, Global<To> y) {
  constexpr int kTimes = 4;
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * 4, begin = block_x() * step * kTimes;
  std::int64_t one = begin + thread_x(), end = begin + step * kTimes;
  if (is_aligned(x, 4 * sizeof(From)) && is_aligned(y, 4 * sizeof(To))) {
    Pack<From, 4> held[kTimes];
    MIXTAPE_UNROLL
    for (int u = 0; u < kTimes; ++u) {
      const std::int64_t i = begin + u * step + thread_x() * 4;
      if (i + 4 <= p.count) held[u] = load_pack<4>(x + i);
    }
    MIXTAPE_UNROLL
    for (int u = 0; u < kTimes; ++u) {
      const std::int64_t i = begin + u * step + thread_x() * 4;
      if (i + 4 > p.count) break;
      Pack<To, 4> out;
      if (p.accumulate != 0) out = load_pack<4>(y + i);
      MIXTAPE_UNROLL
      for (int c = 0; c < 4; ++c) {
        const float v = widened(held[u].v[c]);
        out.v[c] = p.accumulate != 0 ? from_f32<To>(to_f32(out.v[c]) + v) : converted<To>(v);
      }
      store_pack(y + i, out);
    }
    one = p.count - p.count % 4 + thread_x();  // what no pack holds
    end = block_x() == 0 ? p.count : 0;
  }
  for (; one < end && one < p.count; one += threads_x()) {
    const float v = widened<From>(x[one]);
    y[one] = p.accumulate != 0 ? from_f32<To>(to_f32(y[one]) + v) : converted<To>(v);
  }
}

#define CAST(FROM, TO)                                                                         \
  MIXTAPE_KERNEL(cast_##FROM##_##TO, 256, UnaryParams p, Global<const FROM> x, Global<TO> y) { \
    await_earlier();                                                                           \
    cast<FROM, TO>(p, x, y);                                                                   \
  }
#define CASTS(FROM) \
  CAST(FROM, f32)   \
  CAST(FROM, bf16)  \
  CAST(FROM, f16)
MIXTAPE_VALUE_KERNELS(CASTS)

}  // namespace mixtape
