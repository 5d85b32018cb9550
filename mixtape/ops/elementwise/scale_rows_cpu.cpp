#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/elementwise/scale_rows_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/elementwise/scale_rows_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void scale_row(const T* x, float factor, T* y, std::size_t cols, bool accumulate) {
  const Floats s = set(factor);
  std::size_t c = 0;
  for (; !accumulate && c + lanes() <= cols; c += lanes()) store(hn::Mul(load(x + c), s), y + c);
  for (; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats v = hn::Mul(load(x + c, n), s);
    store(accumulate ? hn::Add(load(y + c, n), v) : v, y + c, n);
  }
}

template <class T>
void scale_rows_forward(const HostCall& call) {
  const auto& p = call.params<ScaleRowsParams>();
  const T* x = call.read<T>(0);
  const T* s = call.read<T>(1);
  T* y = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      scale_row(x + r * p.cols, static_cast<float>(s[r]), y + r * p.cols, static_cast<std::size_t>(p.cols),
                p.accumulate != 0);
    }
  });
}
MIXTAPE_SIMD_KERNEL(scale_rows_forward)

template <class T>
float dot_row(const T* x, const T* dy, std::size_t cols) {
  Floats sum0 = zero(), sum1 = zero();
  std::size_t c = 0;
  for (; c + 2 * lanes() <= cols; c += 2 * lanes()) {
    sum0 = hn::MulAdd(load(x + c), load(dy + c), sum0);
    sum1 = hn::MulAdd(load(x + c + lanes()), load(dy + c + lanes()), sum1);
  }
  for (; c < cols; c += lanes()) sum0 = hn::MulAdd(load(x + c, cols - c), load(dy + c, cols - c), sum0);
  return sum_lanes(hn::Add(sum0, sum1));
}

template <class T>
void scale_rows_backward_s(const HostCall& call) {
  const auto& p = call.params<ScaleRowsParams>();
  const T* x = call.read<T>(0);
  const T* dy = call.read<T>(1);
  T* ds = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float dot = dot_row(x + r * p.cols, dy + r * p.cols, static_cast<std::size_t>(p.cols));
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
