#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/reduce/reduce_params.h"

namespace mixtape {

// A thread's part of the sum over x[0 .. n): N elements at a time, threads_x threads beside each other.
template <class T, int N>
MIXTAPE_DEVICE float thread_sum(Global<const T> x, std::int64_t n) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  float sum = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < n; c += step) {
    const Pack<T, N> held = load_pack<N>(x + c);
    float part = 0.0f;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) part += to_f32(held.v[i]);
    sum += part;
  }
  return sum;
}

template <class T, int N>
MIXTAPE_DEVICE void row_sum_forward(const ReduceParams& p, Global<const T> x, Global<T> y,
                                    Shared<float> scratch) {
  const std::int64_t row = row_index(), cols = row < p.rows ? p.cols : 0;
  const float sum = row_sum(thread_sum<T, N>(x + row * p.cols, cols), scratch);
  if (thread_x() == 0 && cols > 0) y[row] = from_f32<T>(sum / p.divisor);
}

// dx[i] (+)= value, N elements at a time, four times per thread. `value_of` gives the value from i on.
template <class T, int N, class Value>
MIXTAPE_DEVICE void spread(std::int64_t count, Global<T> dx, bool accumulate, const Value& value_of) {
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  const std::int64_t begin = block_x() * step * 4 + thread_x() * N;
  MIXTAPE_UNROLL
  for (int u = 0; u < 4; ++u) {
    const std::int64_t i = begin + u * step;
    if (i >= count) break;
    const float value = value_of(i);
    Pack<T, N> out;
    if (accumulate) out = load_pack<N>(dx + i);
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) out.v[c] = from_f32<T>(accumulate ? to_f32(out.v[c]) + value : value);
    store_pack(dx + i, out);
  }
}

// The value of i's row.
template <class T>
struct RowValue {
  Global<const T> dy;
  float divisor;
  std::int64_t cols, count;
  MIXTAPE_DEVICE float operator()(std::int64_t i) const {
    return to_f32(dy[quotient(i, cols, count)]) / divisor;
  }
};
struct OneValue {
  float value;
  MIXTAPE_DEVICE float operator()(std::int64_t) const { return value; }
};

#define ROWS_BY(T, NAME, N)                                                                           \
  MIXTAPE_KERNEL(row_sum_forward_##T##NAME, 256, ReduceParams p, Global<const T> x, Global<T> y) {    \
    await_earlier();                                                                                  \
    MIXTAPE_SHARED(float, scratch, 32);                                                               \
    row_sum_forward<T, N>(p, x, y, scratch);                                                          \
  }                                                                                                   \
  MIXTAPE_KERNEL(row_sum_backward_##T##NAME, 256, ReduceParams p, Global<const T> dy, Global<T> dx) { \
    await_earlier();                                                                                  \
    const std::int64_t count = p.rows * p.cols;                                                       \
    spread<T, N>(count, dx, p.accumulate != 0, RowValue<T>{dy, p.divisor, p.cols, count});            \
  }                                                                                                   \
  MIXTAPE_KERNEL(sum_backward_##T##NAME, 256, ReduceParams p, Global<const float> dy, Global<T> dx) { \
    await_earlier();                                                                                  \
    spread<T, N>(p.cols, dx, p.accumulate != 0, OneValue{dy[0] / p.divisor});                         \
  }
#define ROWS(T)                      \
  ROWS_BY(T, _packs, 16 / sizeof(T)) \
  ROWS_BY(T, _ones, 1)
MIXTAPE_VALUE_KERNELS(ROWS)

// A block of kSumBlock elements per block; the last elements, which fill no pack, are added singly.
template <class T>
MIXTAPE_DEVICE void sum_blocks(const ReduceParams& p, Global<const T> x, Global<float> sums,
                               Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t begin = block_x() * kSumBlock, left = p.cols - begin;
  const std::int64_t n = left < kSumBlock ? left : kSumBlock;
  const std::int64_t packed = is_aligned(x, 16) ? n / kPack * kPack : 0;
  float sum = thread_sum<T, kPack>(x + begin, packed);
  sum += thread_sum<T, 1>(x + (begin + packed), n - packed);
  sum = block_sum(sum, scratch);
  if (thread_x() == 0) sums[block_x()] = sum;
}

#define SUM(T)                                                                                 \
  MIXTAPE_KERNEL(sum_blocks_##T, 256, ReduceParams p, Global<const T> x, Global<float> sums) { \
    await_earlier();                                                                           \
    MIXTAPE_SHARED(float, scratch, 32);                                                        \
    sum_blocks<T>(p, x, sums, scratch);                                                        \
  }
MIXTAPE_VALUE_KERNELS(SUM)

// One block adds up the blocks.
MIXTAPE_KERNEL(sum_of_blocks, 1024, ReduceParams p, Global<const float> sums, Global<float> y) {
  await_earlier();
  MIXTAPE_SHARED(float, scratch, 32);
  const float sum = block_sum(thread_sum<float, 1>(sums, p.cols), scratch);
  if (thread_x() == 0) y[0] = sum / p.divisor;
}

}  // namespace mixtape
