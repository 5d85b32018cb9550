#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/partials.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"
#include "mixtape/ops/rms_norm/rstd_gpu.h"

namespace mixtape {

// The first column of pack h of this thread.
template <int N>
MIXTAPE_DEVICE int column(int h) {
  return (h * threads_x() + thread_x()) * N;
}

// The row stays in registers: Held packs per thread, threads_x threads a row. cols is a multiple of the pack.
template <class T, class W, int Held>
MIXTAPE_DEVICE void rms_norm_forward_held(const RmsNormParams& p, Global<const T> x, Global<const W> w,
                                          Global<T> y, Global<float> rstd, Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t row = row_index();
  const std::int64_t cols = row < p.rows ? p.cols : 0;
  Pack<T, kPack> held[Held];
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = column<kPack>(h);
    if (c < cols) held[h] = load_pack<kPack>(x + (row * p.cols + c));
  }
  float sum = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (column<kPack>(h) >= cols) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) sum = fma_f32(to_f32(held[h].v[i]), to_f32(held[h].v[i]), sum);
  }
  const float r = rstd_of(row_sum(sum, scratch), p.cols, p.eps);
  if (cols > 0 && thread_x() == 0) rstd[row] = r;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = column<kPack>(h);
    if (c >= cols) break;
    const Pack<W, kPack> weight = load_pack<kPack>(w + c);
    Pack<T, kPack> out;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) out.v[i] = from_f32<T>(to_f32(held[h].v[i]) * r * to_f32(weight.v[i]));
    store_pack(y + (row * p.cols + c), out);
  }
}

template <class T, int N, int Held>
MIXTAPE_DEVICE void load_held(Global<const T> row, bool is_there, std::int64_t cols,
                              Pack<T, N> (&held)[Held]) {
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    held[h] = Pack<T, N>{};
    if (is_there && column<N>(h) < cols) held[h] = load_pack<N>(row + column<N>(h));
  }
}

// Widened once for all rows.
template <class W, int N, int Held>
MIXTAPE_DEVICE void load_weight(const RmsNormParams& p, Global<const W> w, float (&weight)[Held * N]) {
  Pack<W, N> packs[Held];
  load_held<W, N, Held>(w, true, p.cols, packs);
  MIXTAPE_UNROLL
  for (int i = 0; i < Held * N; ++i) weight[i] = to_f32(packs[i / N].v[i % N]);
}

// Any row, read twice.
template <class T, class W>
MIXTAPE_DEVICE void rms_norm_forward_any(const RmsNormParams& p, Global<const T> x, Global<const W> w,
                                         Global<T> y, Global<float> rstd, Shared<float> scratch) {
  const std::int64_t row = row_index();
  const std::int64_t cols = row < p.rows ? p.cols : 0, at = row * p.cols;
  float sum = 0.0f;
  for (std::int64_t c = thread_x(); c < cols; c += threads_x())
    sum = fma_f32(to_f32(x[at + c]), to_f32(x[at + c]), sum);
  const float r = rstd_of(row_sum(sum, scratch), p.cols, p.eps);
  if (cols > 0 && thread_x() == 0) rstd[row] = r;
  for (std::int64_t c = thread_x(); c < cols; c += threads_x())
    y[at + c] = from_f32<T>(to_f32(x[at + c]) * r * to_f32(w[c]));
}

#define FORWARD_AS(NAME, THREADS, T, W, ...)                                                              \
  MIXTAPE_KERNEL(rms_norm_forward_##NAME, THREADS, RmsNormParams p, Global<const T> x, Global<const W> w, \
                 Global<T> y, Global<float> rstd) {                                                       \
    await_earlier();                                                                                      \
    MIXTAPE_SHARED(float, scratch, 32);                                                                   \
    __VA_ARGS__(p, x, w, y, rstd, scratch);                                                               \
  }
#define FORWARD(NAME, T, W)                                           \
  FORWARD_AS(NAME##_held1, 256, T, W, rms_norm_forward_held<T, W, 1>) \
  FORWARD_AS(NAME##_held2, 256, T, W, rms_norm_forward_held<T, W, 2>) \
  FORWARD_AS(NAME##_held4, 256, T, W, rms_norm_forward_held<T, W, 4>) \
  FORWARD_AS(NAME##_held8, 512, T, W, rms_norm_forward_held<T, W, 8>) \
  FORWARD_AS(NAME##_any, 512, T, W, rms_norm_forward_any<T, W>)
FORWARD(f32, f32, f32)
FORWARD(bf16, bf16, bf16)
FORWARD(bf16_w_f32, bf16, f32)
FORWARD(f16, f16, f16)
FORWARD(f16_w_f32, f16, f32)

// What a thread has of one row of x and dy; zeros beyond it.
template <class T, int Held>
struct RmsNormRow {
  static constexpr int kPack = 16 / sizeof(T);
  Pack<T, kPack> x[Held], dy[Held];
  float rstd;

  MIXTAPE_DEVICE void load(Global<const T> all_x, Global<const T> all_dy, Global<const float> all_rstd,
                           std::int64_t row, std::int64_t end, std::int64_t cols) {
    rstd = row < end ? static_cast<float>(all_rstd[row]) : 0.0f;
    MIXTAPE_UNROLL
    for (int h = 0; h < Held; ++h) {
      const int c = column<kPack>(h);
      const bool is_inside = row < end && c < cols;
      x[h] = Pack<T, kPack>{};
      dy[h] = Pack<T, kPack>{};
      if (!is_inside) continue;
      x[h] = load_pack<kPack>(all_x + (row * cols + c));
      dy[h] = load_pack<kPack>(all_dy + (row * cols + c));
    }
  }
};

// dx = rstd * (dy*w - x*slope) of one row.
template <class T, class W, int Held, int N>
MIXTAPE_DEVICE void put_dx(const RmsNormParams& p, const RmsNormRow<T, Held>& row, Global<const W> w,
                           float slope, Global<T> dx) {
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    const int c = column<N>(h);
    if (c >= p.cols) break;
    const Pack<W, N> weight = load_pack<N>(w + c);
    Pack<T, N> out;
    if ((p.accumulate & p.dx) != 0) out = load_pack<N>(dx + c);
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) {
      const float g = to_f32(row.dy[h].v[i]) * to_f32(weight.v[i]);
      const float d = row.rstd * fma_f32(-to_f32(row.x[h].v[i]), slope, g);
      out.v[i] = from_f32<T>((p.accumulate & p.dx) != 0 ? to_f32(out.v[i]) + d : d);
    }
    store_pack(dx + c, out);
  }
}

// dx alone: a row per threads_x threads.
template <class T, class W, int Held>
MIXTAPE_DEVICE void rms_norm_backward_x(const RmsNormParams& p, Global<const T> x, Global<const W> w,
                                        Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                        Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t r = row_index();
  RmsNormRow<T, Held> row;
  row.load(x, dy, rstd, r, p.rows, p.cols);
  float dot = 0.0f;
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    if (column<kPack>(h) >= p.cols) break;
    const Pack<W, kPack> weight = load_pack<kPack>(w + column<kPack>(h));
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i)
      dot = fma_f32(to_f32(row.dy[h].v[i]) * to_f32(weight.v[i]), to_f32(row.x[h].v[i]), dot);
  }
  const float slope = row_sum(dot, scratch) * row.rstd / static_cast<float>(p.cols) * row.rstd;
  if (r < p.rows) put_dx<T, W, Held, kPack>(p, row, w, slope, dx + r * p.cols);
}

// The block's share of dw. Rows that ran side by side (threads_y of them) are added up in order.
template <int Held, int N>
MIXTAPE_DEVICE void put_partial_dw(const RmsNormParams& p, const float (&dw)[Held * N], Global<float> partial,
                                   Shared<float> rows) {
  if (threads_y() == 1) {
    MIXTAPE_UNROLL
    for (int h = 0; h < Held; ++h) {
      const int c = column<N>(h);
      if (c >= p.cols) break;
      Pack<float, N> out;
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) out.v[i] = dw[h * N + i];
      store_pack(partial + c, out);
    }
  } else if constexpr (Held == 1) {
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
}

// A block goes through its row_block rows, threads_y at a time: dx of each, and its share of dw in registers.
// The next rows are on their way while one is worked on. dx comes last: it may overwrite dy.
template <class T, class W, int Held>
MIXTAPE_DEVICE void rms_norm_backward_held(const RmsNormParams& p, Global<const T> x, Global<const W> w,
                                           Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                           Global<float> partials, Shared<float> scratch,
                                           Shared<float> rows) {
  constexpr int kPack = 16 / sizeof(T);
  constexpr bool kIsAhead = Held == 1;
  const std::int64_t begin = block_x() * p.row_block;
  const std::int64_t end = begin + p.row_block < p.rows ? begin + p.row_block : p.rows;
  float dw[Held * kPack] = {};
  RmsNormRow<T, Held> row, next;
  if (kIsAhead) next.load(x, dy, rstd, begin + thread_y(), end, p.cols);
  for (std::int64_t first = begin; first < end; first += threads_y()) {
    const std::int64_t r = first + thread_y();
    if (kIsAhead) {
      row = next;
      next.load(x, dy, rstd, r + threads_y(), end, p.cols);
    } else {
      row.load(x, dy, rstd, r, end, p.cols);
    }
    float dot = 0.0f;
    MIXTAPE_UNROLL
    for (int h = 0; h < Held; ++h) {
      if (column<kPack>(h) >= p.cols) break;
      const Pack<W, kPack> weight = load_pack<kPack>(w + column<kPack>(h));
      MIXTAPE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const float a = to_f32(row.x[h].v[i]), d = to_f32(row.dy[h].v[i]);
        dot = fma_f32(d * to_f32(weight.v[i]), a, dot);
        dw[h * kPack + i] = fma_f32(d, a * row.rstd, dw[h * kPack + i]);
      }
    }
    if ((p.wanted & p.dx) == 0) continue;
    const float slope = row_sum(dot, scratch) * row.rstd / static_cast<float>(p.cols) * row.rstd;
    if (r < end) put_dx<T, W, Held, kPack>(p, row, w, slope, dx + r * p.cols);
  }
  if ((p.wanted & p.dw) != 0) put_partial_dw<Held, kPack>(p, dw, partials + block_x() * p.cols, rows);
}

// The same for a pack per thread and row, Rows rows at a time: one barrier for all.
template <class T, class W, int Rows>
MIXTAPE_DEVICE void rms_norm_backward_ahead(const RmsNormParams& p, Global<const T> x, Global<const W> w,
                                            Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                            Global<float> partials, Shared<float> scratch) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t begin = block_x() * p.row_block;
  const std::int64_t end = begin + p.row_block < p.rows ? begin + p.row_block : p.rows;
  float weight[kPack];
  load_weight<W, kPack, 1>(p, w, weight);
  float dw[kPack] = {};
  RmsNormRow<T, 1> row[Rows], next[Rows];
  MIXTAPE_UNROLL
  for (int j = 0; j < Rows; ++j) next[j].load(x, dy, rstd, begin + j, end, p.cols);
  int turn = 0;
  for (std::int64_t first = begin; first < end; first += Rows, turn ^= Rows * kLanes) {
    float dot[Rows] = {};
    MIXTAPE_UNROLL
    for (int j = 0; j < Rows; ++j) {
      row[j] = next[j];
      next[j].load(x, dy, rstd, first + Rows + j, end, p.cols);
      MIXTAPE_UNROLL
      for (int i = 0; i < kPack; ++i) {
        const float a = to_f32(row[j].x[0].v[i]), d = to_f32(row[j].dy[0].v[i]);
        dot[j] = fma_f32(d * weight[i], a, dot[j]);
        dw[i] = fma_f32(d, a * row[j].rstd, dw[i]);
      }
      dot[j] = lane_sum(dot[j]);
      if (lane() == 0) scratch[turn + j * kLanes + warp()] = dot[j];
    }
    barrier();
    MIXTAPE_UNROLL
    for (int j = 0; j < Rows; ++j) {
      const bool has = lane() < block_threads() / kLanes;
      const float sum = lane_sum(has ? static_cast<float>(scratch[turn + j * kLanes + lane()]) : 0.0f);
      const float slope = sum * row[j].rstd / static_cast<float>(p.cols) * row[j].rstd;
      if ((p.wanted & p.dx) != 0 && first + j < end)
        put_dx<T, W, 1, kPack>(p, row[j], w, slope, dx + (first + j) * p.cols);
    }
  }
  if ((p.wanted & p.dw) != 0) put_partial_dw<1, kPack>(p, dw, partials + block_x() * p.cols, scratch);
}

// Any row, read twice; the share of dw grows in memory.
template <class T, class W>
MIXTAPE_DEVICE void rms_norm_backward_any(const RmsNormParams& p, Global<const T> x, Global<const W> w,
                                          Global<const float> rstd, Global<const T> dy, Global<T> dx,
                                          Global<float> partials, Shared<float> scratch) {
  const std::int64_t begin = block_x() * p.row_block;
  const std::int64_t end = begin + p.row_block < p.rows ? begin + p.row_block : p.rows;
  const Global<float> partial = partials + block_x() * p.cols;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t at = row * p.cols;
    const float r = rstd[row];
    float dot = 0.0f;
    for (std::int64_t c = thread_x(); c < p.cols; c += threads_x())
      dot = fma_f32(to_f32(dy[at + c]) * to_f32(w[c]), to_f32(x[at + c]), dot);
    const float slope = row_sum(dot, scratch) * r / static_cast<float>(p.cols) * r;
    for (std::int64_t c = thread_x(); c < p.cols; c += threads_x()) {
      const float a = to_f32(x[at + c]), d = to_f32(dy[at + c]);
      if ((p.wanted & p.dw) != 0)
        partial[c] = fma_f32(d, a * r, row == begin ? 0.0f : static_cast<float>(partial[c]));
      if ((p.wanted & p.dx) == 0) continue;
      const float out = r * fma_f32(-a, slope, d * to_f32(w[c]));
      dx[at + c] = from_f32<T>((p.accumulate & p.dx) != 0 ? to_f32(dx[at + c]) + out : out);
    }
  }
}

#define BACKWARD_KERNEL(NAME, THREADS, T, W)                                                               \
  MIXTAPE_KERNEL(rms_norm_backward_##NAME, THREADS, RmsNormParams p, Global<const T> x, Global<const W> w, \
                 Global<const float> rstd, Global<const T> dy, Global<T> dx, Global<float> partials)
#define BACKWARD_X(NAME, THREADS, HELD, T, W)                                                          \
  MIXTAPE_KERNEL(rms_norm_backward_##NAME##_x_held##HELD, THREADS, RmsNormParams p, Global<const T> x, \
                 Global<const W> w, Global<const float> rstd, Global<const T> dy, Global<T> dx) {      \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED(float, scratch, 32);                                                                \
    rms_norm_backward_x<T, W, HELD>(p, x, w, rstd, dy, dx, scratch);                                   \
  }
#define BACKWARD(NAME, T, W)                                                            \
  BACKWARD_KERNEL(NAME##_held1, 1024, T, W) {                                           \
    await_earlier();                                                                    \
    MIXTAPE_SHARED(float, scratch, 32);                                                 \
    MIXTAPE_SHARED(float, rows, 256 * 16 / sizeof(T));                                  \
    rms_norm_backward_held<T, W, 1>(p, x, w, rstd, dy, dx, partials, scratch, rows);    \
  }                                                                                     \
  BACKWARD_KERNEL(NAME##_ahead, 1024, T, W) {                                           \
    await_earlier();                                                                    \
    constexpr int kRows = sizeof(T) / 2;                                                \
    MIXTAPE_SHARED(float, scratch, 2 * kRows * kLanes);                                 \
    rms_norm_backward_ahead<T, W, kRows>(p, x, w, rstd, dy, dx, partials, scratch);     \
  }                                                                                     \
  BACKWARD_KERNEL(NAME##_held4, 512, T, W) {                                            \
    await_earlier();                                                                    \
    MIXTAPE_SHARED(float, scratch, 32);                                                 \
    rms_norm_backward_held<T, W, 4>(p, x, w, rstd, dy, dx, partials, scratch, scratch); \
  }                                                                                     \
  BACKWARD_KERNEL(NAME##_any, 512, T, W) {                                              \
    await_earlier();                                                                    \
    MIXTAPE_SHARED(float, scratch, 32);                                                 \
    rms_norm_backward_any<T, W>(p, x, w, rstd, dy, dx, partials, scratch);              \
  }                                                                                     \
  BACKWARD_X(NAME, 1024, 1, T, W)                                                       \
  BACKWARD_X(NAME, 512, 4, T, W)
BACKWARD(f32, f32, f32)
BACKWARD(bf16, bf16, bf16)
BACKWARD(bf16_w_f32, bf16, f32)
BACKWARD(f16, f16, f16)
BACKWARD(f16_w_f32, f16, f32)

#define WEIGHT(T)                                                                                   \
  MIXTAPE_KERNEL(rms_norm_backward_weight_##T, 256, PartialsParams p, Global<const float> partials, \
                 Global<T> dw) {                                                                    \
    await_earlier();                                                                                \
    MIXTAPE_SHARED(float, scratch, kPartialScratch);                                                \
    add_partials<T>(p, partials, dw, scratch);                                                      \
  }
MIXTAPE_VALUE_KERNELS(WEIGHT)

}  // namespace mixtape
