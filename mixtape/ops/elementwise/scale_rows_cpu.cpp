#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/elementwise/scale_rows_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/elementwise/scale_rows_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void scale_row(const T* x, float factor, T* y, std::size_t cols, bool accumulate, bool is_large) {
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats v = hn::Mul(step.load(x + c), set(factor));
    step.store(accumulate ? hn::Add(step.load(y + c), v) : v, y + c);
  });
}

template <class T>
void scale_rows_forward(const HostCall& call) {
  const auto& p = call.params<ScaleRowsParams>();
  const T* x = call.read<T>(0);
  const T* s = call.read<T>(1);
  T* y = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      scale_row(x + r * p.cols, static_cast<float>(s[r]), y + r * p.cols, static_cast<std::size_t>(p.cols),
                accumulate, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(scale_rows_forward)

template <class T>
void scale_rows_backward_s(const HostCall& call) {
  const auto& p = call.params<ScaleRowsParams>();
  const T* x = call.read<T>(0);
  const T* dy = call.read<T>(1);
  T* ds = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float dot = dot_of(x + r * p.cols, dy + r * p.cols, static_cast<std::size_t>(p.cols));
      ds[r] = T(p.accumulate ? static_cast<float>(ds[r]) + dot : dot);
    }
  });
}
MIXTAPE_SIMD_KERNEL(scale_rows_backward_s)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(scale_rows_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(scale_rows_backward_s)
}  // namespace mixtape
#endif
