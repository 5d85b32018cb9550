#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/log_softmax/log_softmax_cpu.cpp"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/log_softmax/log_softmax_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
float sum_of_exp(const T* x, float max, std::size_t n) {
  const Floats shift = set(max == -HUGE_VALF ? 0.0f : max);
  Floats sum0 = zero(), sum1 = zero();
  std::size_t c = 0;
  for (; c + 2 * lanes() <= n; c += 2 * lanes()) {
    __builtin_prefetch(x + c + n);
    sum0 = hn::Add(sum0, exp_down(hn::Sub(load(x + c), shift)));
    __builtin_prefetch(x + c + n + lanes());
    sum1 = hn::Add(sum1, exp_down(hn::Sub(load(x + c + lanes()), shift)));
  }
  for (; c < n; c += lanes()) {
    sum0 = hn::Add(sum0, keep_first(exp_down(hn::Sub(load(x + c, n - c), shift)), n - c, zero()));
  }
  return sum_lanes(hn::Add(sum0, sum1));
}

// stats = the largest and log sum exp(x - largest). The row is read from memory once, in blocks that stay in
// the first-level cache; a block with a larger value rescales the sum.
template <class T>
void row_stats(const T* x, float* stats, std::size_t cols) {
  constexpr std::size_t kBlock = 4096;
  float max = -HUGE_VALF, sum = 0.0f;
  for (std::size_t c = 0; c < cols; c += kBlock) {
    const std::size_t n = std::min(kBlock, cols - c);
    const float own = max_of(x + c, n), larger = std::max(max, own);
    const float own_sum = sum_of_exp(x + c, own, n);
    sum = (c == 0 ? 0.0f : sum * exp_down(max - larger)) + own_sum * exp_down(own - larger);
    max = larger;
  }
  stats[0] = max;
  stats[1] = std::log(sum);
}

template <class T>
void log_softmax_row(const T* x, T* y, float* stats, std::size_t cols, bool is_large) {
  row_stats(x, stats, cols);
  const Floats max = set(stats[0]), log_sum = set(stats[1]);
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Sub(hn::Sub(step.load(x + c), max), log_sum), y + c);
  });
}

template <class T>
void log_softmax_forward(const HostCall& call) {
  const auto& p = call.params<LogSoftmaxParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  auto* stats = call.write<float>(1);
  const bool is_large = streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      log_softmax_row(x + r * p.cols, y + r * p.cols, stats + 2 * r, static_cast<std::size_t>(p.cols),
                      is_large);
  });
}
MIXTAPE_SIMD_KERNEL(log_softmax_forward)

template <class T>
void log_softmax_backward_row(const T* x, const float* stats, const T* dy, T* dx, std::size_t cols,
                              bool accumulate, bool is_large) {
  const Floats max = set(stats[0]), log_sum = set(stats[1]), sum = set(sum_of(dy, cols));
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats p = exp(hn::Sub(hn::Sub(step.load(x + c), max), log_sum));
    const Floats d = hn::NegMulAdd(p, sum, step.load(dy + c));
    step.store(accumulate ? hn::Add(step.load(dx + c), d) : d, dx + c);
  });
}

template <class T>
void log_softmax_backward(const HostCall& call) {
  const auto& p = call.params<LogSoftmaxParams>();
  const T* x = call.read<T>(0);
  const auto* stats = call.read<float>(1);
  const T* dy = call.read<T>(2);
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      log_softmax_backward_row(x + at, stats + 2 * r, dy + at, dx + at, static_cast<std::size_t>(p.cols),
                               accumulate, is_large);
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
