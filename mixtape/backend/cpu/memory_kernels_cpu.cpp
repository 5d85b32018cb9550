// Host kernels behind CommandEncoder::copy, fill and accumulate.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/backend/cpu/memory_kernels_cpu.cpp"
#include <cstring>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/backend/cpu/streams.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void add_into(const T* src, T* dst, std::size_t n) {
  for_each_step(n, false, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(hn::Add(step.load(dst + i), step.load(src + i)), dst + i);
  });
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

inline constexpr std::int64_t kChunkBytes = 1 << 18;

[[maybe_unused]] void copy_past_caches(const std::byte* src, std::byte* dst, std::size_t bytes) {
  const auto* from = reinterpret_cast<const float*>(src);
  auto* to = reinterpret_cast<float*>(dst);
  const std::size_t words = bytes / sizeof(float);
  for_each_step(words, true,
                [&](std::size_t i, auto step) HWY_ATTR { step.store(step.load(from + i), to + i); });
  std::memcpy(to + words, from + words, bytes % sizeof(float));
}

[[maybe_unused]] void copy(const HostCall& call) {
  const auto* src = call.read<std::byte>(0);
  auto* dst = call.write<std::byte>(0);
  const auto bytes = static_cast<std::int64_t>(call.writes[0].bytes());
  const bool is_large = streams(dst, 1, bytes);
  cpu::parallel_for(bytes, kChunkBytes, [&](std::int64_t begin, std::int64_t end) {
    const auto n = static_cast<std::size_t>(end - begin);
    if (is_large) return copy_past_caches(src + begin, dst + begin, n);
    std::memmove(dst + begin, src + begin, n);
  });
}

template <class T>
void fill_chunk(float value, T* dst, std::size_t n, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR { step.store(set(value), dst + i); });
}

template <class T>
void fill_values(const HostCall& call) {
  T* dst = call.write<T>(0);
  const std::int64_t count = call.writes[0].numel();
  const bool is_large = streams(dst, 1, count);
  cpu::parallel_for(count, kChunkBytes / std::int64_t{sizeof(T)}, [&](std::int64_t begin, std::int64_t end) {
    fill_chunk(call.params<float>(), dst + begin, static_cast<std::size_t>(end - begin), is_large);
  });
}

inline void fill_zero(const HostCall& call) {
  auto* dst = call.write<std::byte>(0);
  cpu::parallel_for(static_cast<std::int64_t>(call.writes[0].bytes()), kChunkBytes,
                    [&](std::int64_t begin, std::int64_t end) {
                      std::memset(dst + begin, 0, static_cast<std::size_t>(end - begin));
                    });
}

// Integers are only ever filled with 0.
[[maybe_unused]] void fill(const HostCall& call) {
  switch (call.writes[0].dtype()) {
    case DType::f32:
      return fill_values<float>(call);
    case DType::bf16:
      return fill_values<bf16>(call);
    case DType::f16:
      return fill_values<f16>(call);
    case DType::i32:
    case DType::u32:
    case DType::u16:
    case DType::u8:
      return fill_zero(call);
  }
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
HWY_EXPORT(copy_past_caches);
void cpu::copy_past_caches(const std::byte* from, std::byte* to, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(copy_past_caches)(from, to, bytes);
}

MIXTAPE_REGISTER_SIMD_ONE(copy)
MIXTAPE_REGISTER_SIMD_ONE(fill)
MIXTAPE_REGISTER_SIMD_KERNEL(accumulate)
}  // namespace mixtape
#endif
