// The gradient of a group's scale and bias, for host kernels. Compiled once per instruction set, like
// backend/cpu/simd-inl.h.
#if defined(MIXTAPE_OPS_GROUP_SUMS_CPU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_OPS_GROUP_SUMS_CPU_H_
#undef MIXTAPE_OPS_GROUP_SUMS_CPU_H_
#else
#define MIXTAPE_OPS_GROUP_SUMS_CPU_H_
#endif

#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/quantize/quantize_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class S>
void put_gradient(float value, Accumulate accumulate, void* out, std::int64_t i) {
  S* values = static_cast<S*>(out);
  if (values == nullptr) return;
  values[i] = S(accumulate == Accumulate::yes ? static_cast<float>(values[i]) + value : value);
}

// dscale = sum dw*code, dbias = sum dw.
struct GroupSums {
  Floats products, sums;

  HWY_INLINE GroupSums() : products(zero()), sums(zero()) {}
  HWY_INLINE void add(Floats dw, Floats codes) {
    products = hn::MulAdd(dw, codes, products);
    sums = hn::Add(sums, dw);
  }
  // To gradients of type S.
  template <class S>
  HWY_INLINE void put(const cpu::ScaleGradients& out, std::int64_t group) const {
    put_gradient<S>(sum_lanes(products), out.accumulate_scales, out.dscales, group);
    put_gradient<S>(sum_lanes(sums), out.accumulate_biases, out.dbiases, group);
  }
};

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
