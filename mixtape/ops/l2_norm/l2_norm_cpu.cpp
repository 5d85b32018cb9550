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
void l2_norm_row(const T* x, float q, T* y, std::size_t cols, bool is_large) {
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Mul(step.load(x + c), set(q)), y + c);
  });
}

template <class T>
void l2_norm_forward(const HostCall& call) {
  const auto& p = call.params<L2NormParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  float* q = call.write<float>(1);
  const auto cols = static_cast<std::size_t>(p.cols);
  const bool is_large = streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * p.cols;
      q[r] = 1.0f / std::sqrt(dot_of(row, row, cols) + p.eps);
      l2_norm_row(row, q[r], y + r * p.cols, cols, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(l2_norm_forward)

// dx = q * (dy - x*slope), slope = q^2 * sum x*dy
template <class T>
void l2_norm_backward_row(const T* x, float q, float slope, const T* dy, T* dx, std::size_t cols,
                          bool accumulate, bool is_large) {
  const Floats factor = set(q), k = set(slope);
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats d = hn::Mul(factor, hn::NegMulAdd(step.load(x + c), k, step.load(dy + c)));
    step.store(accumulate ? hn::Add(step.load(dx + c), d) : d, dx + c);
  });
}

template <class T>
void l2_norm_backward(const HostCall& call) {
  const auto& p = call.params<L2NormParams>();
  const T* x = call.read<T>(0);
  const float* q = call.read<float>(1);
  const T* dy = call.read<T>(2);
  T* dx = call.write<T>(0);
  const auto cols = static_cast<std::size_t>(p.cols);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      const float slope = dot_of(x + at, dy + at, cols) * q[r] * q[r];
      l2_norm_backward_row(x + at, q[r], slope, dy + at, dx + at, cols, accumulate, is_large);
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
