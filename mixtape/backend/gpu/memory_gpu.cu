// Behind CommandEncoder::fill and accumulate.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/memory_params.h"

namespace mixtape {

#define FILL(T)                                                                            \
  MIXTAPE_KERNEL(fill_##T, 256, FillParams p, Global<T> y) {                               \
    await_earlier();                                                                       \
    const T value = from_f32<T>(p.value);                                                  \
    for (std::int64_t i = global_thread(); i < p.count; i += grid_threads()) y[i] = value; \
  }
MIXTAPE_VALUE_KERNELS(FILL)

template <class T>
MIXTAPE_DEVICE void accumulate(const AccumulateParams& p, Global<const T> x, Global<T> y) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t i = global_thread() * kPack;
  if (i + kPack <= p.count && is_aligned(x, 16) && is_aligned(y, 16)) {
    const Pack<T, kPack> a = load_pack<kPack>(x + i);
    Pack<T, kPack> b = load_pack<kPack>(y + i);
    MIXTAPE_UNROLL
    for (int c = 0; c < kPack; ++c) b.v[c] = from_f32<T>(to_f32(b.v[c]) + to_f32(a.v[c]));
    store_pack(y + i, b);
  } else {
    for (int c = 0; c < kPack && i + c < p.count; ++c)
      y[i + c] = from_f32<T>(to_f32(y[i + c]) + to_f32(x[i + c]));
  }
}
#define ACCUMULATE(T)                                                                                \
  MIXTAPE_KERNEL(accumulate_##T##_kernel, 256, AccumulateParams p, Global<const T> x, Global<T> y) { \
    await_earlier();                                                                                 \
    accumulate<T>(p, x, y);                                                                          \
  }
MIXTAPE_VALUE_KERNELS(ACCUMULATE)

// y (+)= x in another value dtype, four at a time.
template <class From, class To>
MIXTAPE_DEVICE void convert(const ConvertParams& p, Global<const From> x, Global<To> y) {
  const std::int64_t i = global_thread() * 4;
  if (i + 4 <= p.count && is_aligned(x, 4 * sizeof(From)) && is_aligned(y, 4 * sizeof(To))) {
    const Pack<From, 4> a = load_pack<4>(x + i);
    Pack<To, 4> b;
    if (p.accumulate != 0) b = load_pack<4>(y + i);
    MIXTAPE_UNROLL
    for (int c = 0; c < 4; ++c) {
      const float v = to_f32(a.v[c]);
      b.v[c] = from_f32<To>(p.accumulate != 0 ? to_f32(b.v[c]) + v : v);
    }
    store_pack(y + i, b);
  } else {
    for (int c = 0; c < 4 && i + c < p.count; ++c) {
      const float v = to_f32(x[i + c]);
      y[i + c] = from_f32<To>(p.accumulate != 0 ? to_f32(y[i + c]) + v : v);
    }
  }
}
#define CONVERT(FROM, TO)                                                                           \
  MIXTAPE_KERNEL(convert_##FROM##_##TO, 256, ConvertParams p, Global<const FROM> x, Global<TO> y) { \
    await_earlier();                                                                                \
    convert<FROM, TO>(p, x, y);                                                                     \
  }
CONVERT(f32, bf16)
CONVERT(f32, f16)
CONVERT(bf16, f32)
CONVERT(f16, f32)

}  // namespace mixtape
