#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/elementwise/select_params.h"

namespace mixtape {

// What T's values are compared as.
MIXTAPE_DEVICE float wide(f32 v) { return v; }
MIXTAPE_DEVICE float wide(bf16 v) { return to_f32(v); }
MIXTAPE_DEVICE float wide(f16 v) { return to_f32(v); }
MIXTAPE_DEVICE std::int64_t wide(std::int32_t v) { return v; }
MIXTAPE_DEVICE std::int64_t wide(std::uint32_t v) { return v; }
MIXTAPE_DEVICE std::int64_t wide(std::uint8_t v) { return v; }
MIXTAPE_DEVICE std::int64_t wide(std::uint16_t v) { return v; }

template <class T>
MIXTAPE_DEVICE void compare(const CompareParams& p, Global<const T> a, Global<const T> b,
                            Global<std::uint8_t> y) {
  const std::int64_t i = global_thread();
  if (i >= p.count) return;
  const auto left = wide(static_cast<T>(a[i * p.a_step])), right = wide(static_cast<T>(b[i * p.b_step]));
  const std::uint32_t found = left < right    ? p.when_less
                              : left == right ? p.when_equal
                              : left > right  ? p.when_greater
                                              : p.when_unordered;
  y[i] = static_cast<std::uint8_t>(found);
}

#define COMPARE(NAME, T)                                                                             \
  MIXTAPE_KERNEL(compare_forward_##NAME, 256, CompareParams p, Global<const T> a, Global<const T> b, \
                 Global<std::uint8_t> y) {                                                           \
    await_earlier();                                                                                 \
    compare<T>(p, a, b, y);                                                                          \
  }
COMPARE(f32, f32)
COMPARE(bf16, bf16)
COMPARE(f16, f16)
COMPARE(i32, std::int32_t)
COMPARE(u32, std::uint32_t)
COMPARE(u8, std::uint8_t)
COMPARE(u16, std::uint16_t)

#define WHERE(NAME, T)                                                                      \
  MIXTAPE_KERNEL(where_forward_##NAME, 256, WhereParams p, Global<const std::uint8_t> mask, \
                 Global<const T> a, Global<const T> b, Global<T> y) {                       \
    await_earlier();                                                                        \
    const std::int64_t i = global_thread();                                                 \
    if (i >= p.count) return;                                                               \
    const bool is_chosen = mask[i * p.mask_step] != 0;                                      \
    y[i] = static_cast<T>(is_chosen ? a[i * p.a_step] : b[i * p.b_step]);                   \
  }
WHERE(1_bytes, std::uint8_t)
WHERE(2_bytes, std::uint16_t)
WHERE(4_bytes, std::uint32_t)

#define WHERE_BACKWARD(T)                                                                         \
  MIXTAPE_KERNEL(where_backward_##T, 256, WhereBackwardParams p, Global<const std::uint8_t> mask, \
                 Global<const T> dy, Global<T> dx) {                                              \
    await_earlier();                                                                              \
    const std::int64_t i = global_thread();                                                       \
    if (i >= p.count) return;                                                                     \
    const bool is_chosen = (mask[i * p.mask_step] != 0) == (p.is_a != 0);                         \
    const float d = is_chosen ? to_f32(dy[i]) : 0.0f;                                             \
    dx[i] = from_f32<T>(p.accumulate != 0 ? to_f32(dx[i]) + d : d);                               \
  }
MIXTAPE_VALUE_KERNELS(WHERE_BACKWARD)

}  // namespace mixtape
