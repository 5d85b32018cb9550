#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/silu_mul/silu_mul_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/silu_mul/silu_mul_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void silu_mul_run(const T* gate, const T* up, T* y, std::size_t n, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(hn::Mul(silu(step.load(gate + i)), step.load(up + i)), y + i);
  });
}

template <class T>
void silu_mul_forward(const HostCall& call) {
  const T* gate = call.read<T>(0);
  const T* up = call.read<T>(1);
  T* y = call.write<T>(0);
  const std::int64_t count = call.params<SiluMulParams>().count;
  const bool is_large = streams(y, 1, count);
  cpu::parallel_for(count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    silu_mul_run(gate + begin, up + begin, y + begin, static_cast<std::size_t>(end - begin), is_large);
  });
}
MIXTAPE_SIMD_KERNEL(silu_mul_forward)

struct SiluMulGradients {
  Floats gate, up;
};
HWY_INLINE SiluMulGradients silu_mul_gradients(Floats gate, Floats up, Floats dy) {
  const Sigmoids s = sigmoids(gate);
  return {hn::Mul(hn::Mul(dy, up), silu_slope(gate, s)), hn::Mul(dy, silu(gate, s))};
}

template <class T>
void silu_mul_backward_run(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::size_t n,
                           const SiluMulParams& p, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const SiluMulGradients d = silu_mul_gradients(step.load(gate + i), step.load(up + i), step.load(dy + i));
    if (dgate) step.store(p.accumulate & p.dgate ? hn::Add(step.load(dgate + i), d.gate) : d.gate, dgate + i);
    if (dup) step.store(p.accumulate & p.dup ? hn::Add(step.load(dup + i), d.up) : d.up, dup + i);
  });
}

template <class T>
void silu_mul_backward(const HostCall& call) {
  const auto& p = call.params<SiluMulParams>();
  const T* gate = call.read<T>(0);
  const T* up = call.read<T>(1);
  const T* dy = call.read<T>(2);
  T* dgate = call.write_if<T>(p.wanted, p.dgate);
  T* dup = call.write_if<T>(p.wanted, p.dup);
  const bool is_large =
      p.accumulate == 0 && (!dgate || streams(dgate, 1, p.count)) && (!dup || streams(dup, 1, p.count));
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    silu_mul_backward_run(gate + begin, up + begin, dy + begin, dgate ? dgate + begin : nullptr,
                          dup ? dup + begin : nullptr, static_cast<std::size_t>(end - begin), p, is_large);
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
