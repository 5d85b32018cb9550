#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/silu_mul/silu_mul_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/silu_mul/silu_mul_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// a * x, and 0 where a is 0 even if x is infinite.
HWY_INLINE Floats mul_or_zero(Floats a, Floats x) {
  return hn::IfThenElse(hn::Eq(a, zero()), zero(), hn::Mul(a, x));
}

HWY_INLINE Floats silu_times(Floats gate, Floats up) { return hn::Mul(mul_or_zero(sigmoid(gate), gate), up); }

template <class T>
void silu_mul_run(const T* gate, const T* up, T* y, std::size_t n) {
  std::size_t i = 0;
  for (; i + lanes() <= n; i += lanes()) store(silu_times(load(gate + i), load(up + i)), y + i);
  if (i < n) store(silu_times(load(gate + i, n - i), load(up + i, n - i)), y + i, n - i);
}

template <class T>
void silu_mul_forward(const HostCall& call) {
  const T* gate = call.read<T>(0);
  const T* up = call.read<T>(1);
  T* y = call.write<T>(0);
  const std::int64_t count = call.params<SiluMulParams>().count;
  cpu::parallel_for(count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    silu_mul_run(gate + begin, up + begin, y + begin, static_cast<std::size_t>(end - begin));
  });
}
MIXTAPE_SIMD_KERNEL(silu_mul_forward)

template <class T>
void silu_mul_backward_run(const T* gates, const T* ups, const T* dys, T* dgate, T* dup, std::size_t count,
                           const SiluMulParams& p) {
  for (std::size_t i = 0; i < count; i += lanes()) {
    const std::size_t n = count - i;
    const Floats gate = load(gates + i, n), up = load(ups + i, n), dy = load(dys + i, n);
    const Floats e = exp(hn::Neg(hn::Abs(gate)));
    const Floats large = hn::Div(set(1.0f), hn::Add(set(1.0f), e));
    const Floats small = hn::Mul(e, large);
    const auto negative = hn::Lt(gate, zero());
    const Floats s = hn::IfThenElse(negative, small, large);
    const Floats s_of_minus = hn::IfThenElse(negative, large, small);
    const Floats slope = mul_or_zero(s, hn::Add(set(1.0f), mul_or_zero(s_of_minus, gate)));
    const Floats to_gate = hn::Mul(hn::Mul(dy, up), slope);
    const Floats to_up = hn::Mul(dy, mul_or_zero(s, gate));
    if (p.wants_dgate)
      store(p.accumulate_dgate ? hn::Add(load(dgate + i, n), to_gate) : to_gate, dgate + i, n);
    if (p.wants_dup) store(p.accumulate_dup ? hn::Add(load(dup + i, n), to_up) : to_up, dup + i, n);
  }
}

template <class T>
void silu_mul_backward(const HostCall& call) {
  const auto& p = call.params<SiluMulParams>();
  const T* gate = call.read<T>(0);
  const T* up = call.read<T>(1);
  const T* dy = call.read<T>(2);
  T* dgate = call.write<T>(0);
  T* dup = call.write<T>(1);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    silu_mul_backward_run(gate + begin, up + begin, dy + begin, dgate + begin, dup + begin,
                          static_cast<std::size_t>(end - begin), p);
  });
}
MIXTAPE_SIMD_KERNEL(silu_mul_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(silu_mul_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(silu_mul_backward)
}  // namespace mixtape
#endif
