#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/l2_norm/l2_norm_cpu.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/l2_norm/l2_norm_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
float dot_of(const T* a, const T* b, std::size_t cols) {
  Floats s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  const std::size_t step = lanes();
  std::size_t c = 0;
  for (; c + 4 * step <= cols; c += 4 * step) {
    s0 = hn::MulAdd(load(a + c), load(b + c), s0);
    s1 = hn::MulAdd(load(a + c + step), load(b + c + step), s1);
    s2 = hn::MulAdd(load(a + c + 2 * step), load(b + c + 2 * step), s2);
    s3 = hn::MulAdd(load(a + c + 3 * step), load(b + c + 3 * step), s3);
  }
  for (; c < cols; c += step) s0 = hn::MulAdd(load(a + c, cols - c), load(b + c, cols - c), s0);
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

template <class T>
void l2_norm_row(const T* x, float q, T* y, std::size_t cols) {
  const Floats factor = set(q);
  std::size_t c = 0;
  for (; c + lanes() <= cols; c += lanes()) store(hn::Mul(load(x + c), factor), y + c);
  if (c < cols) store(hn::Mul(load(x + c, cols - c), factor), y + c, cols - c);
}

template <class T>
void l2_norm_forward(const HostCall& call) {
  const auto& p = call.params<L2NormParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  float* q = call.write<float>(1);
  const auto cols = static_cast<std::size_t>(p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * p.cols;
      q[r] = 1.0f / std::sqrt(dot_of(row, row, cols) + p.eps);
      l2_norm_row(row, q[r], y + r * p.cols, cols);
    }
  });
}
MIXTAPE_SIMD_KERNEL(l2_norm_forward)

// dx = q * (dy - x*slope), slope = q^2 * sum x*dy
template <class T>
void l2_norm_backward_row(const T* x, float q, float slope, const T* dy, T* dx, std::size_t cols,
                          bool accumulate) {
  const Floats factor = set(q), k = set(slope);
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats d = hn::Mul(factor, hn::NegMulAdd(load(x + c, n), k, load(dy + c, n)));
    store(accumulate ? hn::Add(load(dx + c, n), d) : d, dx + c, n);
  }
}

template <class T>
void l2_norm_backward(const HostCall& call) {
  const auto& p = call.params<L2NormParams>();
  const T* x = call.read<T>(0);
  const float* q = call.read<float>(1);
  const T* dy = call.read<T>(2);
  T* dx = call.write<T>(0);
  const auto cols = static_cast<std::size_t>(p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      const float slope = dot_of(x + at, dy + at, cols) * q[r] * q[r];
      l2_norm_backward_row(x + at, q[r], slope, dy + at, dx + at, cols, p.accumulate != 0);
    }
  });
}
MIXTAPE_SIMD_KERNEL(l2_norm_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(l2_norm_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(l2_norm_backward)
}  // namespace mixtape
#endif
