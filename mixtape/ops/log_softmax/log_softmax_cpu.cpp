#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/log_softmax/log_softmax_cpu.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/log_softmax/log_softmax_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
float max_of_row(const T* x, std::size_t cols) {
  Floats max0 = set(-HUGE_VALF), max1 = max0;
  std::size_t c = 0;
  for (; c + 2 * lanes() <= cols; c += 2 * lanes()) {
    max0 = max_nan(max0, load(x + c));
    max1 = max_nan(max1, load(x + c + lanes()));
  }
  for (; c < cols; c += lanes()) {
    max0 = max_nan(max0, keep_first(load(x + c, cols - c), cols - c, set(-HUGE_VALF)));
  }
  return max_lanes_nan(max_nan(max0, max1));
}

template <class T>
float sum_of_exp(const T* x, float max, std::size_t cols) {
  const Floats m = set(max);
  Floats sum0 = zero(), sum1 = zero();
  std::size_t c = 0;
  for (; c + 2 * lanes() <= cols; c += 2 * lanes()) {
    sum0 = hn::Add(sum0, exp(hn::Sub(load(x + c), m)));
    sum1 = hn::Add(sum1, exp(hn::Sub(load(x + c + lanes()), m)));
  }
  for (; c < cols; c += lanes()) {
    sum0 = hn::Add(sum0, keep_first(exp(hn::Sub(load(x + c, cols - c), m)), cols - c, zero()));
  }
  return sum_lanes(hn::Add(sum0, sum1));
}

template <class T>
void log_softmax_row(const T* x, T* y, float* stats, std::size_t cols) {
  stats[0] = max_of_row(x, cols);
  stats[1] = std::log(sum_of_exp(x, stats[0], cols));
  const Floats max = set(stats[0]), log_sum = set(stats[1]);
  std::size_t c = 0;
  for (; c + lanes() <= cols; c += lanes()) store(hn::Sub(hn::Sub(load(x + c), max), log_sum), y + c);
  if (c < cols) store(hn::Sub(hn::Sub(load(x + c, cols - c), max), log_sum), y + c, cols - c);
}

template <class T>
void log_softmax_forward(const HostCall& call) {
  const auto& p = call.params<LogSoftmaxParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  auto* stats = call.write<float>(1);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      log_softmax_row(x + r * p.cols, y + r * p.cols, stats + 2 * r, static_cast<std::size_t>(p.cols));
  });
}
MIXTAPE_SIMD_KERNEL(log_softmax_forward)

template <class T>
float sum_of_row(const T* dy, std::size_t cols) {
  Floats sum0 = zero(), sum1 = zero();
  std::size_t c = 0;
  for (; c + 2 * lanes() <= cols; c += 2 * lanes()) {
    sum0 = hn::Add(sum0, load(dy + c));
    sum1 = hn::Add(sum1, load(dy + c + lanes()));
  }
  for (; c < cols; c += lanes()) sum0 = hn::Add(sum0, load(dy + c, cols - c));
  return sum_lanes(hn::Add(sum0, sum1));
}

template <class T>
void log_softmax_backward_row(const T* x, const float* stats, const T* dy, T* dx, std::size_t cols,
                              bool accumulate) {
  const Floats max = set(stats[0]), log_sum = set(stats[1]), sum = set(sum_of_row(dy, cols));
  std::size_t c = 0;
  for (; !accumulate && c + lanes() <= cols; c += lanes()) {
    const Floats p = exp(hn::Sub(hn::Sub(load(x + c), max), log_sum));
    store(hn::NegMulAdd(p, sum, load(dy + c)), dx + c);
  }
  for (; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats p = exp(hn::Sub(hn::Sub(load(x + c, n), max), log_sum));
    const Floats d = hn::NegMulAdd(p, sum, load(dy + c, n));
    store(accumulate ? hn::Add(load(dx + c, n), d) : d, dx + c, n);
  }
}

template <class T>
void log_softmax_backward(const HostCall& call) {
  const auto& p = call.params<LogSoftmaxParams>();
  const T* x = call.read<T>(0);
  const auto* stats = call.read<float>(1);
  const T* dy = call.read<T>(2);
  T* dx = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      log_softmax_backward_row(x + at, stats + 2 * r, dy + at, dx + at, static_cast<std::size_t>(p.cols),
                               p.accumulate != 0);
    }
  });
}
MIXTAPE_SIMD_KERNEL(log_softmax_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(log_softmax_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(log_softmax_backward)
}  // namespace mixtape
#endif
