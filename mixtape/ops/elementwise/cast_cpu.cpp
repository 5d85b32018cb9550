#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/elementwise/cast_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

HWY_INLINE Floats quiet(Floats x) {
  const Floats quiet_bit = hn::BitCast(kF, hn::Set(UintTag(), 0x400000u));
  return hn::IfThenElse(hn::IsNaN(x), hn::Or(x, quiet_bit), x);
}

template <class From, class To>
void cast_run(const From* x, To* y, std::size_t n, bool accumulate, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats v = quiet(step.load(x + i));
    step.store(accumulate ? hn::Add(step.load(y + i), v) : v, y + i);
  });
}

template <class From, class To>
void cast(const HostCall& call) {
  const auto& p = call.params<UnaryParams>();
  const From* x = call.read<From>(0);
  To* y = call.write<To>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(y, 1, p.count);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    cast_run(x + begin, y + begin, static_cast<std::size_t>(end - begin), accumulate, is_large);
  });
}

template <class To>
void cast_f32(const HostCall& call) {
  cast<float, To>(call);
}
template <class To>
void cast_bf16(const HostCall& call) {
  cast<bf16, To>(call);
}
template <class To>
void cast_f16(const HostCall& call) {
  cast<f16, To>(call);
}
MIXTAPE_SIMD_KERNEL(cast_f32)
MIXTAPE_SIMD_KERNEL(cast_bf16)
MIXTAPE_SIMD_KERNEL(cast_f16)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(cast_f32)
MIXTAPE_REGISTER_SIMD_KERNEL(cast_bf16)
MIXTAPE_REGISTER_SIMD_KERNEL(cast_f16)
}  // namespace mixtape
#endif
