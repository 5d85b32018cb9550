#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/clamped_swiglu/clamped_swiglu_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/clamped_swiglu/clamped_swiglu_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

struct ClampedSwigluParts {
  Floats gate, up;  // clamped, which a NaN is not; up plus 1
};
HWY_INLINE ClampedSwigluParts clamped_swiglu_parts(Floats gate, Floats up, float at) {
  const Floats limit = set(at), lowest = set(-at);
  const Floats u = hn::IfThenElse(hn::Lt(up, lowest), lowest, hn::IfThenElse(hn::Gt(up, limit), limit, up));
  return {hn::IfThenElse(hn::Gt(gate, limit), limit, gate), hn::Add(u, set(1.0f))};
}

template <class T>
void clamped_swiglu_run(const T* gate, const T* up, T* y, std::size_t n, const ClampedSwigluParams& p,
                        bool is_large) {
  const Floats alpha = set(p.alpha), inverse = set(1.0f / p.alpha);
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const ClampedSwigluParts in = clamped_swiglu_parts(step.load(gate + i), step.load(up + i), p.limit);
    step.store(hn::Mul(hn::Mul(silu(hn::Mul(alpha, in.gate)), inverse), in.up), y + i);
  });
}

template <class T>
void clamped_swiglu_forward(const HostCall& call) {
  const T* gate = call.read<T>(0);
  const T* up = call.read<T>(1);
  T* y = call.write<T>(0);
  const auto& p = call.params<ClampedSwigluParams>();
  const bool is_large = streams(y, 1, p.count);
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    clamped_swiglu_run(gate + begin, up + begin, y + begin, static_cast<std::size_t>(end - begin), p,
                       is_large);
  });
}
MIXTAPE_SIMD_KERNEL(clamped_swiglu_forward)

struct ClampedSwigluGradients {
  Floats gate, up;
};
HWY_INLINE ClampedSwigluGradients clamped_swiglu_gradients(Floats gate, Floats up, Floats dy,
                                                           const ClampedSwigluParams& p) {
  const ClampedSwigluParts in = clamped_swiglu_parts(gate, up, p.limit);
  const Floats x = hn::Mul(set(p.alpha), in.gate);
  const Sigmoids s = sigmoids(x);
  const Floats dgate = hn::Mul(hn::Mul(dy, in.up), silu_slope(x, s));
  const Floats dup = hn::Mul(dy, hn::Mul(silu(x, s), set(1.0f / p.alpha)));
  const Floats limit = set(p.limit);
  return {hn::IfThenZeroElse(hn::Gt(gate, limit), dgate),
          hn::IfThenZeroElse(hn::Gt(hn::Abs(up), limit), dup)};
}

template <class T>
void clamped_swiglu_backward_run(const T* gate, const T* up, const T* dy, T* dgate, T* dup, std::size_t n,
                                 const ClampedSwigluParams& p, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const ClampedSwigluGradients d =
        clamped_swiglu_gradients(step.load(gate + i), step.load(up + i), step.load(dy + i), p);
    if (dgate) step.store(p.accumulate & p.dgate ? hn::Add(step.load(dgate + i), d.gate) : d.gate, dgate + i);
    if (dup) step.store(p.accumulate & p.dup ? hn::Add(step.load(dup + i), d.up) : d.up, dup + i);
  });
}

template <class T>
void clamped_swiglu_backward(const HostCall& call) {
  const auto& p = call.params<ClampedSwigluParams>();
  const T* gate = call.read<T>(0);
  const T* up = call.read<T>(1);
  const T* dy = call.read<T>(2);
  T* dgate = call.write_if<T>(p.wanted, p.dgate);
  T* dup = call.write_if<T>(p.wanted, p.dup);
  const bool is_large =
      p.accumulate == 0 && (!dgate || streams(dgate, 1, p.count)) && (!dup || streams(dup, 1, p.count));
  cpu::parallel_for(p.count, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    clamped_swiglu_backward_run(gate + begin, up + begin, dy + begin, dgate ? dgate + begin : nullptr,
                                dup ? dup + begin : nullptr, static_cast<std::size_t>(end - begin), p,
                                is_large);
  });
}
MIXTAPE_SIMD_KERNEL(clamped_swiglu_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(clamped_swiglu_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(clamped_swiglu_backward)
}  // namespace mixtape
#endif
