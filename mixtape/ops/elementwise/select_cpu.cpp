#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"
#include "mixtape/ops/elementwise/select_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

template <class T>
auto wide(T v) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::int64_t>(v);
  } else {
    return static_cast<float>(v);
  }
}

template <class T>
void compare_forward(const HostCall& call) {
  const auto p = call.params<CompareParams>();
  const T *a = call.read<T>(0), *b = call.read<T>(1);
  auto* y = call.write<std::uint8_t>(0);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto left = wide(a[i * p.a_step]), right = wide(b[i * p.b_step]);
      const bool is_less = left<right, is_equal = left == right, is_greater = left> right;
      const bool is_unordered = !is_less && !is_equal && !is_greater;
      y[i] = static_cast<std::uint8_t>((is_less & p.when_less) | (is_equal & p.when_equal) |
                                       (is_greater & p.when_greater) | (is_unordered & p.when_unordered));
    }
  });
}
MIXTAPE_HOST_KERNEL("compare_forward_f32", compare_forward<float>);
MIXTAPE_HOST_KERNEL("compare_forward_bf16", compare_forward<bf16>);
MIXTAPE_HOST_KERNEL("compare_forward_f16", compare_forward<f16>);
MIXTAPE_HOST_KERNEL("compare_forward_i32", compare_forward<std::int32_t>);
MIXTAPE_HOST_KERNEL("compare_forward_u32", compare_forward<std::uint32_t>);
MIXTAPE_HOST_KERNEL("compare_forward_u8", compare_forward<std::uint8_t>);
MIXTAPE_HOST_KERNEL("compare_forward_u16", compare_forward<std::uint16_t>);

template <class T>
void where_forward(const HostCall& call) {
  const auto p = call.params<WhereParams>();
  const auto* mask = call.read<std::uint8_t>(0);
  const T *a = call.read<T>(1), *b = call.read<T>(2);
  T* y = call.write<T>(0);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      y[i] = mask[i * p.mask_step] != 0 ? a[i * p.a_step] : b[i * p.b_step];
  });
}
MIXTAPE_HOST_KERNEL("where_forward_1_bytes", where_forward<std::uint8_t>);
MIXTAPE_HOST_KERNEL("where_forward_2_bytes", where_forward<std::uint16_t>);
MIXTAPE_HOST_KERNEL("where_forward_4_bytes", where_forward<std::uint32_t>);

template <class T>
void where_backward(const HostCall& call) {
  const auto p = call.params<WhereBackwardParams>();
  const auto* mask = call.read<std::uint8_t>(0);
  const T* dy = call.read<T>(1);
  T* dx = call.write<T>(0);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const bool is_chosen = (mask[i * p.mask_step] != 0) == (p.is_a != 0);
      const float d = is_chosen ? static_cast<float>(dy[i]) : 0.0f;
      dx[i] = T(p.accumulate != 0 ? static_cast<float>(dx[i]) + d : d);
    }
  });
}
MIXTAPE_HOST_KERNEL("where_backward_f32", where_backward<float>);
MIXTAPE_HOST_KERNEL("where_backward_bf16", where_backward<bf16>);
MIXTAPE_HOST_KERNEL("where_backward_f16", where_backward<f16>);

}  // namespace
}  // namespace mixtape
