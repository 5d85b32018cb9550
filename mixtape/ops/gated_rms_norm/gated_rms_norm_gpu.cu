#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/sigmoid.h"
#include "mixtape/ops/gated_rms_norm/gated_rms_norm_params.h"
#include "mixtape/ops/rms_norm/rstd_gpu.h"

namespace mixtape {

// Held packs of 16 bytes per thread stay in registers, threads_x threads a row; N is 1 for any row, which is
// then read twice, one element at a time.
template <class T, class W, int N>
MIXTAPE_DEVICE void put_y(float rstd, const Pack<T, N>& x, const Pack<T, N>& z, const Pack<W, N>& w,
                          Global<T> y) {
  Pack<T, N> out;
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i)
    out.v[i] = from_f32<T>(to_f32(x.v[i]) * rstd * to_f32(w.v[i]) * silu_of(to_f32(z.v[i])));
  store_pack(y, out);
}

template <class T, class W, int Held>
MIXTAPE_DEVICE void gated_rms_norm_forward_held(const RmsNormParams& p, Global<const T> x, Global<const T> z,
                                                Global<const W> w, Global<T> y, Global<float> rstd,
                                                Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index(), at = row * p.cols;
  const std::int64_t cols = row < p.rows ? p.cols : 0;
  Pack<T, kPack> held[Held], gate[Held];
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = (h * threads_x() + thread_x()) * kPack;
    if (c >= cols) continue;
    held[h] = load_pack<kPack>(x + (at + c));
    gate[h] = load_pack<kPack>(z + (at + c));
  }
  float sum = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if ((h * threads_x() + thread_x()) * kPack >= cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) sum = fma_f32(to_f32(held[h].v[i]), to_f32(held[h].v[i]), sum);
  }
  const float r = rstd_of(row_sum(sum, scratch), p.cols, p.eps);
  if (cols > 0 && thread_x() == 0) rstd[row] = r;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = (h * threads_x() + thread_x()) * kPack;
    if (c >= cols) break;
    put_y<T, W, kPack>(r, held[h], gate[h], load_pack<kPack>(w + c), y + (at + c));
  }
}

template <class T, class W>
MIXTAPE_DEVICE void gated_rms_norm_forward_any(const RmsNormParams& p, Global<const T> x, Global<const T> z,
                                               Global<const W> w, Global<T> y, Global<float> rstd,
                                               Shared<float> scratch) {
  const std::int64_t row = row_index(), at = row * p.cols;
  const std::int64_t cols = row < p.rows ? p.cols : 0;
  float sum = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x(); c < cols; c += threads_x())
    sum = fma_f32(to_f32(x[at + c]), to_f32(x[at + c]), sum);
  const float r = rstd_of(row_sum(sum, scratch), p.cols, p.eps);
  if (cols > 0 && thread_x() == 0) rstd[row] = r;
  for (std::int64_t c = thread_x(); c < cols; c += threads_x())
    put_y<T, W, 1>(r, load_pack<1>(x + (at + c)), load_pack<1>(z + (at + c)), load_pack<1>(w + c),
                   y + (at + c));
}

#define FORWARD_AS(NAME, T, W, ...)                                                           \
  MIXTAPE_KERNEL(gated_rms_norm_forward_##NAME, 512, GatedRmsNormParams p, Global<const T> x, \
                 Global<const T> z, Global<const W> w, Global<T> y, Global<float> rstd) {     \
    await_earlier();                                                                          \
    MIXTAPE_SHARED(float, scratch, 32);                                                       \
    __VA_ARGS__(p.norm, x, z, w, y, rstd, scratch);                                           \
  }
#define FORWARD(NAME, T, W)                                            \
  FORWARD_AS(NAME##_held1, T, W, gated_rms_norm_forward_held<T, W, 1>) \
  FORWARD_AS(NAME##_held4, T, W, gated_rms_norm_forward_held<T, W, 4>) \
  FORWARD_AS(NAME##_any, T, W, gated_rms_norm_forward_any<T, W>)
FORWARD(f32, f32, f32)
FORWARD(bf16, bf16, bf16)
FORWARD(f16, f16, f16)
FORWARD(bf16_w_f32, bf16, f32)
FORWARD(f16_w_f32, f16, f32)

// What becomes of N elements of a row: g*w*x and g*x*rstd are added to `dot` and `dw`.
template <class T, class W, int N>
MIXTAPE_DEVICE void add_gated(const Pack<T, N>& x, const Pack<T, N>& z, const Pack<W, N>& w,
                              const Pack<T, N>& dy, float rstd, float& dot, float (&dw)[N]) {
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    const float g = to_f32(dy.v[i]) * silu_of(to_f32(z.v[i])), a = to_f32(x.v[i]);
    dot = fma_f32(g * to_f32(w.v[i]), a, dot);
    dw[i] = fma_f32(g, a * rstd, dw[i]);
  }
}

// dx = rstd * (g*w - x*slope) and dz = dy * x*rstd*w * silu'(z) of N elements.
template <class T, class W, int N>
MIXTAPE_DEVICE void put_gradients(const GatedRmsNormParams& p, const Pack<T, N>& x, const Pack<T, N>& z,
                                  const Pack<W, N>& w, const Pack<T, N>& dy, float rstd, float slope,
                                  Global<T> dx, Global<T> dz) {
  Pack<T, N> out_x, out_z;
  if ((p.wanted & p.dx) != 0 && (p.accumulate & p.dx) != 0) out_x = load_pack<N>(dx);
  if ((p.wanted & p.dz) != 0 && (p.accumulate & p.dz) != 0) out_z = load_pack<N>(dz);
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    const float a = to_f32(x.v[i]), weight = to_f32(w.v[i]), upstream = to_f32(dy.v[i]);
    const Sigmoids s = sigmoids(to_f32(z.v[i]));
    const float g = upstream * mul_or_zero(s.of_x, to_f32(z.v[i]));
    const float to_x = rstd * fma_f32(-a, slope, g * weight);
    const float to_z = upstream * (a * rstd * weight) * silu_slope(to_f32(z.v[i]), s);
    if ((p.wanted & p.dx) != 0)
      out_x.v[i] = from_f32<T>((p.accumulate & p.dx) != 0 ? to_f32(out_x.v[i]) + to_x : to_x);
    if ((p.wanted & p.dz) != 0)
      out_z.v[i] = from_f32<T>((p.accumulate & p.dz) != 0 ? to_f32(out_z.v[i]) + to_z : to_z);
  }
  if ((p.wanted & p.dx) != 0) store_pack(dx, out_x);
  if ((p.wanted & p.dz) != 0) store_pack(dz, out_z);
}

// The block's share of dw. Rows that ran side by side (threads_y of them) are added up in order.
template <int N>
MIXTAPE_DEVICE void put_partial_dw(const RmsNormParams& p, const float (&dw)[N], Global<float> partial,
                                   Shared<float> rows) {
  if (threads_y() == 1) {
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) {
      if (thread_x() * N < p.cols) partial[thread_x() * N + i] = dw[i];
    }
    return;
  }
  const int width = threads_x() * N;
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) rows[thread_y() * width + thread_x() * N + i] = dw[i];
  barrier();
  for (int c = flat_thread(); c < p.cols; c += block_threads()) {
    float sum = 0.0f;
    for (int y = 0; y < threads_y(); ++y) sum += rows[y * width + c];
    partial[c] = sum;
  }
}

// A row of four tensors: what one thread has of it; zeros beyond it.
template <class T, int N>
struct GatedRow {
  Pack<T, N> x, z, dy;
  float rstd;

  MIXTAPE_DEVICE void load(Global<const T> all_x, Global<const T> all_z, Global<const T> all_dy,
                           Global<const float> all_rstd, std::int64_t row, std::int64_t end,
                           std::int64_t cols) {
    x = z = dy = Pack<T, N>{};
    rstd = row < end ? static_cast<float>(all_rstd[row]) : 0.0f;
    if (row >= end || thread_x() * N >= cols) return;
    const std::int64_t at = row * cols + thread_x() * N;
    x = load_pack<N>(all_x + at);
    z = load_pack<N>(all_z + at);
    dy = load_pack<N>(all_dy + at);
  }
};

// A block goes through its row_block rows, threads_y at a time: dx and dz of each, and its share of dw in
// registers. The next rows are on their way while one is worked on. The outputs come last: they may overwrite
// dy and z.
template <class T, class W>
MIXTAPE_DEVICE void gated_rms_norm_backward_held(const GatedRmsNormParams& p, Global<const T> x,
                                                 Global<const T> z, Global<const W> w,
                                                 Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                                 Global<T> dz, Global<float> partials, Shared<float> scratch,
                                                 Shared<float> rows) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t cols = p.norm.cols, begin = block_x() * p.norm.row_block;
  const std::int64_t end = begin + p.norm.row_block < p.norm.rows ? begin + p.norm.row_block : p.norm.rows;
  const bool has = thread_x() * kPack < cols;
  Pack<W, kPack> weight = Pack<W, kPack>{};
  if (has) weight = load_pack<kPack>(w + thread_x() * kPack);
  float dw[kPack] = {};
  GatedRow<T, kPack> row, next;
  next.load(x, z, dy, rstd, begin + thread_y(), end, cols);
  for (std::int64_t first = begin; first < end; first += threads_y()) {
    const std::int64_t r = first + thread_y(), at = r * cols + thread_x() * kPack;
    row = next;
    next.load(x, z, dy, rstd, r + threads_y(), end, cols);
    float dot = 0.0f;
    add_gated<T, W, kPack>(row.x, row.z, weight, row.dy, row.rstd, dot, dw);
    const float slope = row_sum(dot, scratch) * row.rstd / static_cast<float>(cols) * row.rstd;
    if (r < end && has)
      put_gradients<T, W, kPack>(p, row.x, row.z, weight, row.dy, row.rstd, slope, dx + at, dz + at);
  }
  if ((p.wanted & p.dw) != 0) put_partial_dw<kPack>(p.norm, dw, partials + block_x() * cols, rows);
}

// Any row, read twice; the share of dw grows in memory.
template <class T, class W>
MIXTAPE_DEVICE void gated_rms_norm_backward_any(const GatedRmsNormParams& p, Global<const T> x,
                                                Global<const T> z, Global<const W> w,
                                                Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                                Global<T> dz, Global<float> partials, Shared<float> scratch) {
  const std::int64_t cols = p.norm.cols, begin = block_x() * p.norm.row_block;
  const std::int64_t end = begin + p.norm.row_block < p.norm.rows ? begin + p.norm.row_block : p.norm.rows;
  const Global<float> partial = partials + block_x() * cols;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * cols;
    const float r = rstd[row];
    float dot = 0.0f;
    for (std::int64_t c = thread_x(); c < cols; c += threads_x()) {
      float share[1] = {row == begin || (p.wanted & p.dw) == 0 ? 0.0f : static_cast<float>(partial[c])};
      add_gated<T, W, 1>(load_pack<1>(x + (at + c)), load_pack<1>(z + (at + c)), load_pack<1>(w + c),
                         load_pack<1>(dy + (at + c)), r, dot, share);
      if ((p.wanted & p.dw) != 0) partial[c] = share[0];
    }
    const float slope = row_sum(dot, scratch) * r / static_cast<float>(cols) * r;
    for (std::int64_t c = thread_x(); c < cols; c += threads_x())
      put_gradients<T, W, 1>(p, load_pack<1>(x + (at + c)), load_pack<1>(z + (at + c)), load_pack<1>(w + c),
                             load_pack<1>(dy + (at + c)), r, slope, dx + (at + c), dz + (at + c));
  }
}

#define BACKWARD_KERNEL(NAME, T, W)                                                                  \
  MIXTAPE_KERNEL(gated_rms_norm_backward_##NAME, 512, GatedRmsNormParams p, Global<const T> x,       \
                 Global<const T> z, Global<const W> w, Global<const float> rstd, Global<const T> dy, \
                 Global<T> dx, Global<T> dz, Global<float> partials)
#define BACKWARD(NAME, T, W)                                                                   \
  BACKWARD_KERNEL(NAME##_held1, T, W) {                                                        \
    await_earlier();                                                                           \
    MIXTAPE_SHARED(float, scratch, 32);                                                        \
    MIXTAPE_SHARED(float, rows, 256 * 16 / sizeof(T));                                         \
    gated_rms_norm_backward_held<T, W>(p, x, z, w, rstd, dy, dx, dz, partials, scratch, rows); \
  }                                                                                            \
  BACKWARD_KERNEL(NAME##_any, T, W) {                                                          \
    await_earlier();                                                                           \
    MIXTAPE_SHARED(float, scratch, 32);                                                        \
    gated_rms_norm_backward_any<T, W>(p, x, z, w, rstd, dy, dx, dz, partials, scratch);        \
  }
BACKWARD(f32, f32, f32)
BACKWARD(bf16, bf16, bf16)
BACKWARD(f16, f16, f16)
BACKWARD(bf16_w_f32, bf16, f32)
BACKWARD(f16_w_f32, f16, f32)

}  // namespace mixtape
