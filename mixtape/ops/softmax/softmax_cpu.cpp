#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/softmax/softmax_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/softmax/softmax_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
float row_max(const T* x, std::size_t cols) {
  Floats max = set(-HUGE_VALF);
  for (std::size_t c = 0; c < cols; c += lanes()) {
    max = max_nan(max, keep_first(load(x + c, cols - c), cols - c, set(-HUGE_VALF)));
  }
  return max_lanes_nan(max);
}

// Two passes of exp instead of one and a stored row: y may be a 16-bit type, which cannot hold the
// numerators.
template <class T>
void softmax_row(const T* x, T* y, std::size_t cols) {
  const Floats max = set(row_max(x, cols));
  Floats sums = zero();
  for (std::size_t c = 0; c < cols; c += lanes()) {
    sums = hn::Add(sums, keep_first(exp(hn::Sub(load(x + c, cols - c), max)), cols - c, zero()));
  }
  const Floats sum = set(sum_lanes(sums));
  for (std::size_t c = 0; c < cols; c += lanes()) {
    store(hn::Div(exp(hn::Sub(load(x + c, cols - c), max)), sum), y + c, cols - c);
  }
}

template <class T>
void softmax_forward(const HostCall& call) {
  const auto& p = call.params<SoftmaxParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      softmax_row(x + r * p.cols, y + r * p.cols, static_cast<std::size_t>(p.cols));
  });
}
MIXTAPE_SIMD_KERNEL(softmax_forward)

template <class T>
void softmax_backward_row(const T* y, const T* dy, T* dx, std::size_t cols, bool accumulate) {
  Floats dots = zero();
  for (std::size_t c = 0; c < cols; c += lanes()) {
    dots = hn::MulAdd(load(y + c, cols - c), load(dy + c, cols - c), dots);
  }
  const Floats dot = set(sum_lanes(dots));
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats d = hn::Mul(load(y + c, n), hn::Sub(load(dy + c, n), dot));
    store(accumulate ? hn::Add(load(dx + c, n), d) : d, dx + c, n);
  }
}

template <class T>
void softmax_backward(const HostCall& call) {
  const auto& p = call.params<SoftmaxParams>();
  const T* y = call.read<T>(0);
  const T* dy = call.read<T>(1);
  T* dx = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      softmax_backward_row(y + at, dy + at, dx + at, static_cast<std::size_t>(p.cols), p.accumulate != 0);
    }
  });
}
MIXTAPE_SIMD_KERNEL(softmax_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(softmax_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(softmax_backward)
}  // namespace mixtape
#endif
