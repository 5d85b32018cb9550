#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/log_softmax/log_softmax_params.h"

namespace mixtape {

// The first column of pack h of this thread.
template <int N>
MIXTAPE_DEVICE int column(int h) {
  return (h * threads_x() + thread_x()) * N;
}

// The row stays in registers: Held packs per thread, threads_x threads a row. cols is a multiple of the pack.
template <class T, int Held>
MIXTAPE_DEVICE void log_softmax_forward_held(const LogSoftmaxParams& p, Global<const T> x, Global<T> y,
                                             Global<float> stats, Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  Pack<T, kPack> held[Held];
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = column<kPack>(h);
    if (c < p.cols) held[h] = load_pack<kPack>(x + (row * p.cols + c));
  }
  float max = float_of(0xff800000u);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (column<kPack>(h) >= p.cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) max = max_nan(max, to_f32(held[h].v[i]));
  }
  max = row_max(max, scratch);
  float sum = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (column<kPack>(h) >= p.cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) sum += exp_f32(to_f32(held[h].v[i]) - max);
  }
  const float log_sum = log_f32(row_sum(sum, scratch));
  if (thread_x() == 0) stats[2 * row] = max;
  if (thread_x() == 0) stats[2 * row + 1] = log_sum;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = column<kPack>(h);
    if (c >= p.cols) break;
    Pack<T, kPack> out;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) out.v[i] = from_f32<T>(to_f32(held[h].v[i]) - max - log_sum);
    store_pack(y + (row * p.cols + c), out);
  }
}

// Any row, read twice, N elements at a time: first a running maximum and the sum of exponentials below it.
template <class T, int N>
MIXTAPE_DEVICE void log_softmax_forward_any(const LogSoftmaxParams& p, Global<const T> x, Global<T> y,
                                            Global<float> stats, Shared<float> scratch) {
  const std::int64_t row = row_index(), step = static_cast<std::int64_t>(threads_x()) * N;
  if (row >= p.rows) return;
  const float lowest = float_of(0xff800000u);
  float max = lowest, sum = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < p.cols; c += step) {
    const Pack<T, N> held = load_pack<N>(x + (row * p.cols + c));
    float higher = max;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) higher = max_nan(higher, to_f32(held.v[i]));
    if (higher == lowest) continue;
    sum *= exp_f32(max - higher);
    max = higher;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum += exp_f32(to_f32(held.v[i]) - max);
  }
  const float row_highest = row_max(max, scratch);
  const float log_sum = log_f32(row_sum(max == lowest ? 0.0f : sum * exp_f32(max - row_highest), scratch));
  if (thread_x() == 0) stats[2 * row] = row_highest;
  if (thread_x() == 0) stats[2 * row + 1] = log_sum;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < p.cols; c += step) {
    Pack<T, N> held = load_pack<N>(x + (row * p.cols + c));
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) held.v[i] = from_f32<T>(to_f32(held.v[i]) - row_highest - log_sum);
    store_pack(y + (row * p.cols + c), held);
  }
}

#define FORWARD_AS(T, NAME, THREADS, ...)                                                                    \
  MIXTAPE_KERNEL(log_softmax_forward_##T##NAME, THREADS, LogSoftmaxParams p, Global<const T> x, Global<T> y, \
                 Global<float> stats) {                                                                      \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED(float, scratch, 32);                                                                      \
    __VA_ARGS__(p, x, y, stats, scratch);                                                                    \
  }
#define FORWARD(T)                                                       \
  FORWARD_AS(T, _held1, 512, log_softmax_forward_held<T, 1>)             \
  FORWARD_AS(T, _held2, 512, log_softmax_forward_held<T, 2>)             \
  FORWARD_AS(T, _held4, 512, log_softmax_forward_held<T, 4>)             \
  FORWARD_AS(T, _packs, 512, log_softmax_forward_any<T, 16 / sizeof(T)>) \
  FORWARD_AS(T, _ones, 512, log_softmax_forward_any<T, 1>)
MIXTAPE_VALUE_KERNELS(FORWARD)

// dx = dy - exp(x - max - log_sum) * sum dy
template <class T, int N>
MIXTAPE_DEVICE void put_dx(const LogSoftmaxParams& p, const Pack<T, N>& x, const Pack<T, N>& dy, float max,
                           float log_sum, float sum, Global<T> dx) {
  Pack<T, N> out;
  if (p.accumulate != 0) out = load_pack<N>(dx);
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    const float d = fma_f32(-exp_f32(to_f32(x.v[i]) - max - log_sum), sum, to_f32(dy.v[i]));
    out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + d : d);
  }
  store_pack(dx, out);
}

template <class T, int Held>
MIXTAPE_DEVICE void log_softmax_backward_held(const LogSoftmaxParams& p, Global<const T> x,
                                              Global<const float> stats, Global<const T> dy, Global<T> dx,
                                              Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  Pack<T, kPack> held_x[Held], held_dy[Held];
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = column<kPack>(h);
    if (c >= p.cols) break;
    held_x[h] = load_pack<kPack>(x + (row * p.cols + c));
    held_dy[h] = load_pack<kPack>(dy + (row * p.cols + c));
  }
  const float max = stats[2 * row], log_sum = stats[2 * row + 1];
  float sum = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (column<kPack>(h) >= p.cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) sum += to_f32(held_dy[h].v[i]);
  }
  sum = row_sum(sum, scratch);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = column<kPack>(h);
    if (c >= p.cols) break;
    put_dx(p, held_x[h], held_dy[h], max, log_sum, sum, dx + (row * p.cols + c));
  }
}

// Any row; dy is read twice.
template <class T, int N>
MIXTAPE_DEVICE void log_softmax_backward_any(const LogSoftmaxParams& p, Global<const T> x,
                                             Global<const float> stats, Global<const T> dy, Global<T> dx,
                                             Shared<float> scratch) {
  const std::int64_t row = row_index(), step = static_cast<std::int64_t>(threads_x()) * N;
  if (row >= p.rows) return;
  const float max = stats[2 * row], log_sum = stats[2 * row + 1];
  float sum = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < p.cols; c += step) {
    const Pack<T, N> held = load_pack<N>(dy + (row * p.cols + c));
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum += to_f32(held.v[i]);
  }
  sum = row_sum(sum, scratch);
  for (std::int64_t c = thread_x() * N; c < p.cols; c += step) {
    const std::int64_t at = row * p.cols + c;
    put_dx(p, load_pack<N>(x + at), load_pack<N>(dy + at), max, log_sum, sum, dx + at);
  }
}

#define BACKWARD_AS(T, NAME, ...)                                                            \
  MIXTAPE_KERNEL(log_softmax_backward_##T##NAME, 512, LogSoftmaxParams p, Global<const T> x, \
                 Global<const float> stats, Global<const T> dy, Global<T> dx) {              \
    await_earlier();                                                                         \
    MIXTAPE_SHARED(float, scratch, 32);                                                      \
    __VA_ARGS__(p, x, stats, dy, dx, scratch);                                               \
  }
#define BACKWARD(T)                                                   \
  BACKWARD_AS(T, _held1, log_softmax_backward_held<T, 1>)             \
  BACKWARD_AS(T, _held2, log_softmax_backward_held<T, 2>)             \
  BACKWARD_AS(T, _held4, log_softmax_backward_held<T, 4>)             \
  BACKWARD_AS(T, _packs, log_softmax_backward_any<T, 16 / sizeof(T)>) \
  BACKWARD_AS(T, _ones, log_softmax_backward_any<T, 1>)
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
