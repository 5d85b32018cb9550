#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/softmax/softmax_params.h"

namespace mixtape {

// The row stays in registers: Held packs per thread, threads_x threads a row. cols is a multiple of the pack.
template <class T, int Held>
MIXTAPE_DEVICE void softmax_forward_held(const SoftmaxParams& p, Global<const T> x, Global<T> y,
                                         Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  Pack<T, kPack> held[Held];
  float max = float_of(0xff800000u);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const std::int64_t c = (static_cast<std::int64_t>(h) * threads_x() + thread_x()) * kPack;
    if (c < p.cols) held[h] = load_pack<kPack>(x + (row * p.cols + c));
  }
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if ((h * threads_x() + thread_x()) * kPack >= p.cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) max = max_nan(max, to_f32(held[h].v[i]));
  }
  max = row_max(max, scratch);
  float e[Held * kPack];
  float sum = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if ((h * threads_x() + thread_x()) * kPack >= p.cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) {
      e[h * kPack + i] = exp_f32(to_f32(held[h].v[i]) - max);
      sum += e[h * kPack + i];
    }
  }
  sum = row_sum(sum, scratch);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const std::int64_t c = (static_cast<std::int64_t>(h) * threads_x() + thread_x()) * kPack;
    if (c >= p.cols) break;
    Pack<T, kPack> out;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) out.v[i] = from_f32<T>(e[h * kPack + i] / sum);
    store_pack(y + (row * p.cols + c), out);
  }
}

// Any row: a running maximum and sum, then a second reading.
template <class T>
MIXTAPE_DEVICE void softmax_forward_any(const SoftmaxParams& p, Global<const T> x, Global<T> y,
                                        Shared<float> scratch) {
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const Global<const T> in = x + row * p.cols;
  float max = float_of(0xff800000u);
  for (std::int64_t c = thread_x(); c < p.cols; c += threads_x()) max = max_nan(max, to_f32(in[c]));
  max = row_max(max, scratch);
  float sum = 0.0f;
  for (std::int64_t c = thread_x(); c < p.cols; c += threads_x()) sum += exp_f32(to_f32(in[c]) - max);
  sum = row_sum(sum, scratch);
  const Global<T> out = y + row * p.cols;
  for (std::int64_t c = thread_x(); c < p.cols; c += threads_x())
    out[c] = from_f32<T>(exp_f32(to_f32(in[c]) - max) / sum);
}

#define FORWARD_HELD(T, HELD)                                                                               \
  MIXTAPE_KERNEL(softmax_forward_##T##_held##HELD, 1024, SoftmaxParams p, Global<const T> x, Global<T> y) { \
    MIXTAPE_SHARED(float, scratch, 32);                                                                     \
    softmax_forward_held<T, HELD>(p, x, y, scratch);                                                        \
  }
#define FORWARD(T)                                                                                   \
  FORWARD_HELD(T, 1)                                                                                 \
  FORWARD_HELD(T, 2)                                                                                 \
  FORWARD_HELD(T, 4)                                                                                 \
  FORWARD_HELD(T, 8)                                                                                 \
  MIXTAPE_KERNEL(softmax_forward_##T##_any, 1024, SoftmaxParams p, Global<const T> x, Global<T> y) { \
    MIXTAPE_SHARED(float, scratch, 32);                                                              \
    softmax_forward_any<T>(p, x, y, scratch);                                                        \
  }
MIXTAPE_VALUE_KERNELS(FORWARD)

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

template <class T>
MIXTAPE_DEVICE void softmax_backward_any(const SoftmaxParams& p, Global<const T> y, Global<const T> dy,
                                         Global<T> dx, Shared<float> scratch) {
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  float dot = 0.0f;
  for (std::int64_t c = thread_x(); c < p.cols; c += threads_x())
    dot = fma_f32(to_f32(y[row * p.cols + c]), to_f32(dy[row * p.cols + c]), dot);
  dot = row_sum(dot, scratch);
  for (std::int64_t c = thread_x(); c < p.cols; c += threads_x()) {
    const std::int64_t at = row * p.cols + c;
    const float d = to_f32(y[at]) * (to_f32(dy[at]) - dot);
    dx[at] = from_f32<T>(p.accumulate != 0 ? to_f32(dx[at]) + d : d);
  }
}

#define BACKWARD_HELD(T, HELD)                                                                \
  MIXTAPE_KERNEL(softmax_backward_##T##_held##HELD, 1024, SoftmaxParams p, Global<const T> y, \
                 Global<const T> dy, Global<T> dx) {                                          \
    MIXTAPE_SHARED(float, scratch, 32);                                                       \
    softmax_backward_held<T, HELD>(p, y, dy, dx, scratch);                                    \
  }
#define BACKWARD(T)                                                                                        \
  BACKWARD_HELD(T, 1)                                                                                      \
  BACKWARD_HELD(T, 2)                                                                                      \
  BACKWARD_HELD(T, 4)                                                                                      \
  MIXTAPE_KERNEL(softmax_backward_##T##_any, 1024, SoftmaxParams p, Global<const T> y, Global<const T> dy, \
                 Global<T> dx) {                                                                           \
    MIXTAPE_SHARED(float, scratch, 32);                                                                    \
    softmax_backward_any<T>(p, y, dy, dx, scratch);                                                        \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
