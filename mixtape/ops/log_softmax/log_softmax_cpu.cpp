#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/log_softmax/log_softmax_cpu.cpp"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/rows-inl.h"
#include "mixtape/ops/log_softmax/log_softmax_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// A row is read from memory once, in blocks that stay in the first-level cache.
inline constexpr std::size_t kBlock = 4096;

template <class T>
void write_block(const T* x, const float* stats, T* y, std::size_t n, bool is_large) {
  const Floats max = set(stats[0]), log_sum = set(stats[1]);
  for_each_step(n, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Sub(hn::Sub(step.reload(x + c), max), log_sum), y + c);
  });
}

// sum exp(x - max) over a block. With kWrites, y takes the block `before`, of the row before: so memory is
// read and written at the same time. The n entries after the block are fetched meanwhile.
template <bool kWrites, class T>
float sum_of_exp(const T* x, float max, std::size_t n, const T* before, const float* stats, T* y,
                 bool is_large) {
  const Floats shift = set(max == -HUGE_VALF ? 0.0f : max);
  RowSum sum;
  for_each_step(n, is_large, [&](std::size_t c, auto step) MIXTAPE_SUM_ATTR {
    __builtin_prefetch(x + c + n);
    if constexpr (kWrites)
      step.store(hn::Sub(hn::Sub(step.reload(before + c), set(stats[0])), set(stats[1])), y + c);
    sum.add(step.pad(exp_down(hn::Sub(step.reload(x + c), shift)), zero()));
  });
  return sum.total();
}

// stats = the largest and log sum exp(x - largest); a block with a larger value rescales the sum. With
// kWrites the row before is written meanwhile.
template <bool kWrites, class T>
void row_stats(const T* x, T* y, float* stats, std::size_t cols, bool is_large) {
  const std::size_t back = kWrites ? cols : 0;
  const float* stats_before = stats - (kWrites ? 2 : 0);
  float max = -HUGE_VALF, sum = 0.0f;
  for (std::size_t c = 0; c < cols; c += kBlock) {
    const std::size_t n = std::min(kBlock, cols - c);
    const float own = max_of(x + c, n), larger = std::max(max, own);
    const float own_sum =
        sum_of_exp<kWrites>(x + c, own, n, x + c - back, stats_before, y + c - back, is_large);
    sum = (c == 0 ? 0.0f : sum * exp_down(max - larger)) + own_sum * exp_down(own - larger);
    max = larger;
  }
  stats[0] = max;
  stats[1] = std::log(sum);
}

// Where memory is what takes the time, a row waits until the next one is read.
template <class T>
void log_softmax_rows(const T* x, T* y, float* stats, std::int64_t rows, std::size_t cols, bool is_large) {
  for (std::int64_t r = 0; r < rows; ++r, x += cols, y += cols, stats += 2) {
    if (is_large && r > 0) {
      row_stats<true>(x, y, stats, cols, is_large);
    } else {
      row_stats<false>(x, y, stats, cols, is_large);
    }
    if (!is_large || r + 1 == rows) write_block(x, stats, y, cols, is_large);
  }
}

template <class T>
void log_softmax_forward(const HostCall& call) {
  const auto& p = call.params<LogSoftmaxParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  auto* stats = call.write<float>(1);
  const bool is_large = streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::neighbour_grain(p.rows, p.cols), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * p.cols;
    log_softmax_rows(x + at, y + at, stats + 2 * begin, end - begin, static_cast<std::size_t>(p.cols),
                     is_large);
  });
}
MIXTAPE_SIMD_KERNEL(log_softmax_forward)

template <class T>
struct LogSoftmaxBackward {
  const T* x;
  const float* stats;
  const T* dy;
  T* dx;
  std::int64_t cols;
  bool accumulate;
  float sum = 0.0f;

  template <class Step>
  HWY_INLINE void add(std::int64_t r, std::size_t c, Step step, RowSum& row_sum) const {
    row_sum.add(step.load(dy + r * cols + c));
  }
  HWY_INLINE void settle(std::int64_t, float row_sum) { sum = row_sum; }
  template <class Step>
  HWY_INLINE void write(std::int64_t r, std::size_t c, Step step) const {
    const std::int64_t at = r * cols + static_cast<std::int64_t>(c);
    const Floats max = set(stats[2 * r]), log_sum = set(stats[2 * r + 1]);
    const Floats p = exp(hn::Sub(hn::Sub(step.load(x + at), max), log_sum));
    const Floats d = hn::NegMulAdd(p, set(sum), step.reload(dy + at));
    step.store(accumulate ? hn::Add(step.load(dx + at), d) : d, dx + at);
  }
};

template <class T>
void log_softmax_backward(const HostCall& call) {
  const auto& p = call.params<LogSoftmaxParams>();
  const T* x = call.read<T>(0);
  const auto* stats = call.read<float>(1);
  const T* dy = call.read<T>(2);
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, p.rows, p.cols);
  const LogSoftmaxBackward<T> kernel{x, stats, dy, dx, p.cols, accumulate};
  parallel_rows(p.rows, is_large, kernel);
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
