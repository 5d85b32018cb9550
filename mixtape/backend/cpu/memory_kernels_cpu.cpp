// Host kernels behind CommandEncoder::copy, fill and accumulate.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/backend/cpu/memory_kernels_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void add_into(const T* src, T* dst, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) {
    store(hn::Add(load(dst + i, n - i), load(src + i, n - i)), dst + i, n - i);
  }
}

template <class T>
void accumulate(const HostCall& call) {
  const T* src = call.read<T>(0);
  T* dst = call.write<T>(0);
  cpu::parallel_for(call.writes[0].numel(), cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    add_into(src + begin, dst + begin, static_cast<std::size_t>(end - begin));
  });
}
MIXTAPE_SIMD_KERNEL(accumulate)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstring>

namespace mixtape {
namespace {

constexpr std::int64_t kChunkBytes = 1 << 18;

void copy(const HostCall& call) {
  const auto* src = call.read<std::byte>(0);
  auto* dst = call.write<std::byte>(0);
  const auto bytes = static_cast<std::int64_t>(call.writes[0].bytes());
  cpu::parallel_for(bytes, kChunkBytes, [&](std::int64_t begin, std::int64_t end) {
    std::memmove(dst + begin, src + begin, static_cast<std::size_t>(end - begin));
  });
}

template <class T>
void fill_with(T value, const HostCall& call) {
  T* dst = call.write<T>(0);
  cpu::parallel_for(call.writes[0].numel(), kChunkBytes / static_cast<std::int64_t>(sizeof(T)),
                    [&](std::int64_t begin, std::int64_t end) { std::fill(dst + begin, dst + end, value); });
}

void fill(const HostCall& call) {
  const float value = call.params<float>();
  switch (call.writes[0].dtype()) {
    case DType::f32:
      return fill_with(value, call);
    case DType::bf16:
      return fill_with(bf16(value), call);
    case DType::f16:
      return fill_with(f16(value), call);
    case DType::i32:
    case DType::u32:
      return fill_with(std::uint32_t{0}, call);
    case DType::u16:
      return fill_with(std::uint16_t{0}, call);
    case DType::u8:
      return fill_with(std::uint8_t{0}, call);
  }
}

MIXTAPE_HOST_KERNEL("copy", copy);
MIXTAPE_HOST_KERNEL("fill", fill);

}  // namespace
MIXTAPE_REGISTER_SIMD_KERNEL(accumulate)
}  // namespace mixtape
#endif
