// Behind CommandEncoder::fill and accumulate.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/memory_params.h"

namespace mixtape {

#define FILL(T)                                                                            \
  MIXTAPE_KERNEL(fill_##T, 256, FillParams p, Global<T> y) {                               \
    const T value = from_f32<T>(p.value);                                                  \
    for (std::int64_t i = global_thread(); i < p.count; i += grid_threads()) y[i] = value; \
  }
FILL(f32)
FILL(bf16)
FILL(f16)

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
    accumulate<T>(p, x, y);                                                                          \
  }
ACCUMULATE(f32)
ACCUMULATE(bf16)
ACCUMULATE(f16)

}  // namespace mixtape
