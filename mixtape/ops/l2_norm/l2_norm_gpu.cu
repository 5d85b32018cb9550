#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/l2_norm/l2_norm_params.h"

namespace mixtape {

// The packs of a row that a thread has: Held of N elements, threads_x threads a row. Zeros beyond the row.
template <class T, int N, int Held>
struct RowPacks {
  Pack<T, N> packs[Held];

  MIXTAPE_DEVICE void load(Global<const T> row, std::int64_t cols) {
    MIXTAPE_UNROLL
    for (int h = 0; h < Held; ++h) {
      const int c = (h * threads_x() + thread_x()) * N;
      packs[h] = Pack<T, N>{};
      if (c < cols) packs[h] = load_pack<N>(row + c);
    }
  }
};

template <class T, int N, int Held>
MIXTAPE_DEVICE float dot_of(const RowPacks<T, N, Held>& a, const RowPacks<T, N, Held>& b) {
  float sum = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum = fma_f32(to_f32(a.packs[h].v[i]), to_f32(b.packs[h].v[i]), sum);
  }
  return sum;
}

MIXTAPE_DEVICE float factor_of(const L2NormParams& p, float sum_of_squares) {
  return 1.0f / sqrt_f32(sum_of_squares + p.eps);
}

// dx of one element.
MIXTAPE_DEVICE float l2_norm_slope(float q, float slope, float x, float dy) {
  return q * fma_f32(-x, slope, dy);
}

// The row stays in registers.
template <class T, int Held>
MIXTAPE_DEVICE void l2_norm_forward_held(const L2NormParams& p, Global<const T> x, Global<T> y,
                                         Global<float> q, Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index(), at = row * p.cols;
  const std::int64_t cols = row < p.rows ? p.cols : 0;
  RowPacks<T, kPack, Held> held;
  held.load(x + at, cols);
  const float factor = factor_of(p, row_sum(dot_of(held, held), scratch));
  if (cols > 0 && thread_x() == 0) q[row] = factor;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = (h * threads_x() + thread_x()) * kPack;
    if (c >= cols) break;
    Pack<T, kPack> out;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) out.v[i] = from_f32<T>(to_f32(held.packs[h].v[i]) * factor);
    store_pack(y + (at + c), out);
  }
}

// Any row, read twice, N elements at a time.
template <class T, int N>
MIXTAPE_DEVICE void l2_norm_forward_any(const L2NormParams& p, Global<const T> x, Global<T> y,
                                        Global<float> q, Shared<float> scratch) {
  const std::int64_t row = row_index(), at = row * p.cols;
  const std::int64_t cols = row < p.rows ? p.cols : 0, step = static_cast<std::int64_t>(threads_x()) * N;
  const Global<const T> in = x + at;
  const Global<T> out = y + at;
  float sum = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < cols; c += step) {
    const Pack<T, N> pack = load_pack<N>(in + c);
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum = fma_f32(to_f32(pack.v[i]), to_f32(pack.v[i]), sum);
  }
  const float factor = factor_of(p, row_sum(sum, scratch));
  if (cols > 0 && thread_x() == 0) q[row] = factor;
  for (std::int64_t c = thread_x() * N; c < cols; c += step) {
    Pack<T, N> pack = load_pack<N>(in + c);
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) pack.v[i] = from_f32<T>(to_f32(pack.v[i]) * factor);
    store_pack(out + c, pack);
  }
}

#define FORWARD_AS(NAME, T, ...)                                                                 \
  MIXTAPE_KERNEL_BLOCKS(l2_norm_forward_##T##_##NAME, 512, 2, L2NormParams p, Global<const T> x, \
                        Global<T> y, Global<float> q) {                                          \
    await_earlier();                                                                             \
    MIXTAPE_SHARED(float, scratch, 32);                                                          \
    __VA_ARGS__(p, x, y, q, scratch);                                                            \
  }
#define FORWARD(T)                                               \
  FORWARD_AS(held1, T, l2_norm_forward_held<T, 1>)               \
  FORWARD_AS(held2, T, l2_norm_forward_held<T, 2>)               \
  FORWARD_AS(held4, T, l2_norm_forward_held<T, 4>)               \
  FORWARD_AS(packs, T, l2_norm_forward_any<T, (16 / sizeof(T))>) \
  FORWARD_AS(ones, T, l2_norm_forward_any<T, 1>)
MIXTAPE_VALUE_KERNELS(FORWARD)

template <class T, int N>
MIXTAPE_DEVICE void put_dx(const L2NormParams& p, float q, float slope, const Pack<T, N>& x,
                           const Pack<T, N>& dy, Global<T> dx) {
  Pack<T, N> out;
  if (p.accumulate != 0) out = load_pack<N>(dx);
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    const float d = l2_norm_slope(q, slope, to_f32(x.v[i]), to_f32(dy.v[i]));
    out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + d : d);
  }
  store_pack(dx, out);
}

template <class T, int Held>
MIXTAPE_DEVICE void l2_norm_backward_held(const L2NormParams& p, Global<const T> x, Global<const float> q,
                                          Global<const T> dy, Global<T> dx, Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index(), at = row * p.cols;
  const std::int64_t cols = row < p.rows ? p.cols : 0;
  RowPacks<T, kPack, Held> held, upstream;
  held.load(x + at, cols);
  upstream.load(dy + at, cols);
  const float factor = cols > 0 ? static_cast<float>(q[row]) : 0.0f;
  const float slope = row_sum(dot_of(held, upstream), scratch) * factor * factor;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = (h * threads_x() + thread_x()) * kPack;
    if (c >= cols) break;
    put_dx(p, factor, slope, held.packs[h], upstream.packs[h], dx + (at + c));
  }
}

template <class T, int N>
MIXTAPE_DEVICE void l2_norm_backward_any(const L2NormParams& p, Global<const T> x, Global<const float> q,
                                         Global<const T> dy, Global<T> dx, Shared<float> scratch) {
  const std::int64_t row = row_index(), at = row * p.cols;
  const std::int64_t cols = row < p.rows ? p.cols : 0, step = static_cast<std::int64_t>(threads_x()) * N;
  float dot = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < cols; c += step) {
    const Pack<T, N> a = load_pack<N>(x + (at + c)), b = load_pack<N>(dy + (at + c));
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) dot = fma_f32(to_f32(a.v[i]), to_f32(b.v[i]), dot);
  }
  const float factor = cols > 0 ? static_cast<float>(q[row]) : 0.0f;
  const float slope = row_sum(dot, scratch) * factor * factor;
  for (std::int64_t c = thread_x() * N; c < cols; c += step)
    put_dx(p, factor, slope, load_pack<N>(x + (at + c)), load_pack<N>(dy + (at + c)), dx + (at + c));
}

#define BACKWARD_AS(NAME, T, ...)                                                       \
  MIXTAPE_KERNEL(l2_norm_backward_##T##_##NAME, 512, L2NormParams p, Global<const T> x, \
                 Global<const float> q, Global<const T> dy, Global<T> dx) {             \
    await_earlier();                                                                    \
    MIXTAPE_SHARED(float, scratch, 32);                                                 \
    __VA_ARGS__(p, x, q, dy, dx, scratch);                                              \
  }
#define BACKWARD(T)                                                \
  BACKWARD_AS(held1, T, l2_norm_backward_held<T, 1>)               \
  BACKWARD_AS(held2, T, l2_norm_backward_held<T, 2>)               \
  BACKWARD_AS(held4, T, l2_norm_backward_held<T, 4>)               \
  BACKWARD_AS(packs, T, l2_norm_backward_any<T, (16 / sizeof(T))>) \
  BACKWARD_AS(ones, T, l2_norm_backward_any<T, 1>)
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
