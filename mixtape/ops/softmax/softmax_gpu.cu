#include "mixtape/backend/gpu/logits.h"
#include "mixtape/ops/softmax/softmax_params.h"

namespace mixtape {

// The sum of a row that threads_x threads share, each with its own maximum; the same in every thread. With
// more than a warp per row `scratch` holds 64 floats, and the block does this once.
MIXTAPE_DEVICE LogSum row_log_sum(LogSum s, Shared<float> scratch) {
  const int width = threads_x() < kLanes ? threads_x() : kLanes;
  float max = s.max;
  for (int mask = width / 2; mask > 0; mask /= 2) max = max_f32(max, lane_xor(max, mask));
  float sum = s.sum * rescale(s.max, max);
  for (int mask = width / 2; mask > 0; mask /= 2) sum += lane_xor(sum, mask);
  if (threads_x() <= kLanes) return LogSum{max, sum};
  if (lane() == 0) {
    scratch[warp()] = max;
    scratch[kLanes + warp()] = sum;
  }
  barrier();
  const bool has = lane() < block_threads() / kLanes;
  const float part_max = has ? static_cast<float>(scratch[lane()]) : minus_infinity();
  const float part = has ? static_cast<float>(scratch[kLanes + lane()]) : 0.0f;
  max = lane_max(part_max);
  return LogSum{max, lane_sum(part * rescale(part_max, max))};
}

template <class T, int N>
MIXTAPE_DEVICE Pack<T, N> softmax_pack(const Pack<T, N>& x, float max, float factor) {
  Pack<T, N> y;
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) y.v[i] = from_f32<T>(exp_fast(to_f32(x.v[i]) - max) * factor);
  return y;
}

// The row stays in registers: Held packs per thread, threads_x threads a row. cols is a multiple of the pack.
template <class T, int Held>
MIXTAPE_DEVICE void softmax_forward_held(const SoftmaxParams& p, Global<const T> x, Global<T> y,
                                         Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const std::int64_t at = static_cast<std::int64_t>(thread_x()) * kPack,
                     step = static_cast<std::int64_t>(threads_x()) * kPack;
  Run<T, kPack, Held> held;
  load_run(x + row * p.cols, at, step, p.cols, held);
  Powers<kPack, Held> powers;
  const float max = run_max(held);
  const LogSum all = row_log_sum(LogSum{max, powers_of(held, max, powers)}, scratch);
  const float factor = powers.factor * (rescale(max, all.max) / all.sum);
  const Global<T> out = y + row * p.cols;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (at + h * step >= p.cols) break;
    Pack<T, kPack> pack;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) pack.v[i] = from_f32<T>(powers.of[h][i] * factor);
    store_pack(out + (at + h * step), pack);
  }
}

// Any row: the sum follows its maximum, then a second reading.
template <class T, int N>
MIXTAPE_DEVICE void softmax_forward_any(const SoftmaxParams& p, Global<const T> x, Global<T> y,
                                        Shared<float> scratch) {
  constexpr int kPacks = 4;
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const Global<const T> in = x + row * p.cols;
  const Global<T> out = y + row * p.cols;
  const std::int64_t first = static_cast<std::int64_t>(thread_x()) * N,
                     step = static_cast<std::int64_t>(threads_x()) * N;
  LogSum all{minus_infinity(), 0.0f};
  for (std::int64_t at = first; at < p.cols; at += kPacks * step) {
    Run<T, N, kPacks> run;
    load_run(in, at, step, p.cols, run);
    add_run(all, run, 1.0f);
  }
  all = row_log_sum(all, scratch);
  const float max = finite_max(all.max), factor = 1.0f / all.sum;
  for (std::int64_t at = first; at < p.cols; at += kPacks * step) {
    Run<T, N, kPacks> run;
    load_run(in, at, step, p.cols, run);
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      if (at + h * step >= p.cols) break;
      store_pack(out + (at + h * step), softmax_pack(run.packs[h], max, factor));
    }
  }
}

#define FORWARD_HELD(T, HELD)                                                                              \
  MIXTAPE_KERNEL(softmax_forward_##T##_held##HELD, 512, SoftmaxParams p, Global<const T> x, Global<T> y) { \
    await_earlier();                                                                                       \
    MIXTAPE_SHARED(float, scratch, 64);                                                                    \
    softmax_forward_held<T, HELD>(p, x, y, scratch);                                                       \
  }
#define FORWARD_ANY(T, NAME, N)                                                                        \
  MIXTAPE_KERNEL(softmax_forward_##T##_##NAME, 512, SoftmaxParams p, Global<const T> x, Global<T> y) { \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED(float, scratch, 64);                                                                \
    softmax_forward_any<T, N>(p, x, y, scratch);                                                       \
  }
#define FORWARD(T)                              \
  FORWARD_HELD(T, 1)                            \
  FORWARD_HELD(T, 2)                            \
  FORWARD_HELD(T, 4)                            \
  FORWARD_ANY(T, packs, (PackOf<T, T>::kWidth)) \
  FORWARD_ANY(T, any, 1)
MIXTAPE_VALUE_KERNELS(FORWARD)
FORWARD_HELD(f32, 8)

template <class T, int Held>
MIXTAPE_DEVICE void softmax_backward_held(const SoftmaxParams& p, Global<const T> y, Global<const T> dy,
                                          Global<T> dx, Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  Pack<T, kPack> held_y[Held], held_dy[Held];
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const std::int64_t c = (static_cast<std::int64_t>(h) * threads_x() + thread_x()) * kPack;
    if (c >= p.cols) break;
    held_y[h] = load_pack<kPack>(y + (row * p.cols + c));
    held_dy[h] = load_pack<kPack>(dy + (row * p.cols + c));
  }
  float dot = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if ((h * threads_x() + thread_x()) * kPack >= p.cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) dot = fma_f32(to_f32(held_y[h].v[i]), to_f32(held_dy[h].v[i]), dot);
  }
  dot = row_sum(dot, scratch);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const std::int64_t c = (static_cast<std::int64_t>(h) * threads_x() + thread_x()) * kPack;
    if (c >= p.cols) break;
    Pack<T, kPack> out;
    if (p.accumulate != 0) out = load_pack<kPack>(dx + (row * p.cols + c));
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      const float d = to_f32(held_y[h].v[i]) * (to_f32(held_dy[h].v[i]) - dot);
      out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + d : d);
    }
    store_pack(dx + (row * p.cols + c), out);
  }
}

template <class T, int N>
MIXTAPE_DEVICE void softmax_backward_any(const SoftmaxParams& p, Global<const T> y, Global<const T> dy,
                                         Global<T> dx, Shared<float> scratch) {
  constexpr int kPacks = 2;
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const std::int64_t begin = row * p.cols, first = static_cast<std::int64_t>(thread_x()) * N,
                     step = static_cast<std::int64_t>(threads_x()) * N;
  float dot = 0.0f;
  for (std::int64_t at = first; at < p.cols; at += kPacks * step) {
    Pack<T, N> held_y[kPacks], held_dy[kPacks];
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      if (at + h * step >= p.cols) break;
      held_y[h] = load_pack<N>(y + (begin + at + h * step));
      held_dy[h] = load_pack<N>(dy + (begin + at + h * step));
    }
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      if (at + h * step >= p.cols) break;
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) dot = fma_f32(to_f32(held_y[h].v[i]), to_f32(held_dy[h].v[i]), dot);
    }
  }
  dot = row_sum(dot, scratch);
  MIXTAPE_UNROLL_4
  for (std::int64_t c = first; c < p.cols; c += step) {
    const Pack<T, N> in = load_pack<N>(y + (begin + c)), d = load_pack<N>(dy + (begin + c));
    Pack<T, N> out;
    if (p.accumulate != 0) out = load_pack<N>(dx + (begin + c));
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) {
      const float v = to_f32(in.v[i]) * (to_f32(d.v[i]) - dot);
      out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + v : v);
    }
    store_pack(dx + (begin + c), out);
  }
}

#define BACKWARD_HELD(T, HELD)                                                               \
  MIXTAPE_KERNEL(softmax_backward_##T##_held##HELD, 512, SoftmaxParams p, Global<const T> y, \
                 Global<const T> dy, Global<T> dx) {                                         \
    await_earlier();                                                                         \
    MIXTAPE_SHARED(float, scratch, 32);                                                      \
    softmax_backward_held<T, HELD>(p, y, dy, dx, scratch);                                   \
  }
#define BACKWARD_ANY(T, NAME, N)                                                                             \
  MIXTAPE_KERNEL(softmax_backward_##T##_##NAME, 512, SoftmaxParams p, Global<const T> y, Global<const T> dy, \
                 Global<T> dx) {                                                                             \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED(float, scratch, 32);                                                                      \
    softmax_backward_any<T, N>(p, y, dy, dx, scratch);                                                       \
  }
#define BACKWARD(T)                              \
  BACKWARD_HELD(T, 1)                            \
  BACKWARD_HELD(T, 2)                            \
  BACKWARD_HELD(T, 4)                            \
  BACKWARD_ANY(T, packs, (PackOf<T, T>::kWidth)) \
  BACKWARD_ANY(T, any, 1)
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
