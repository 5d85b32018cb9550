#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/elementwise/scale_rows_params.h"

namespace mixtape {

// N elements of one row at a time, four times per thread.
template <class T, int N>
MIXTAPE_DEVICE void scale_rows(const ScaleRowsParams& p, Global<const T> x, Global<const T> s, Global<T> y) {
  constexpr int kTimes = 4;
  const std::int64_t count = p.rows * p.cols, step = static_cast<std::int64_t>(threads_x()) * N;
  const std::int64_t begin = block_x() * step * kTimes + thread_x() * N;
  Pack<T, N> held[kTimes];
  float factor[kTimes];
  MIXTAPE_UNROLL
  for (int u = 0; u < kTimes; ++u) {
    const std::int64_t i = begin + u * step;
    if (i >= count) break;
    held[u] = load_pack<N>(x + i);
    factor[u] = to_f32(s[quotient(i, p.cols, count)]);
  }
  MIXTAPE_UNROLL
  for (int u = 0; u < kTimes; ++u) {
    const std::int64_t i = begin + u * step;
    if (i >= count) break;
    Pack<T, N> out;
    if (p.accumulate != 0) out = load_pack<N>(y + i);
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) {
      const float v = to_f32(held[u].v[c]) * factor[u];
      out.v[c] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[c]) + v : v);
    }
    store_pack(y + i, out);
  }
}

// ds[r] = sum_c x[r,c] dy[r,c]: N elements at a time, threads_x threads a row.
template <class T, int N>
MIXTAPE_DEVICE void scale_rows_backward_s(const ScaleRowsParams& p, Global<const T> x, Global<const T> dy,
                                          Global<T> ds, Shared<float> scratch) {
  const std::int64_t row = row_index(), at = row * p.cols, cols = row < p.rows ? p.cols : 0;
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  float dot = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < cols; c += step) {
    const Pack<T, N> a = load_pack<N>(x + (at + c)), b = load_pack<N>(dy + (at + c));
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) dot = fma_f32(to_f32(a.v[i]), to_f32(b.v[i]), dot);
  }
  dot = row_sum(dot, scratch);
  if (thread_x() != 0 || cols == 0) return;
  ds[row] = from_f32<T>(p.accumulate != 0 ? to_f32(ds[row]) + dot : dot);
}

#define KERNELS_BY(T, NAME, N)                                                                               \
  MIXTAPE_KERNEL(scale_rows_forward_##T##NAME, 256, ScaleRowsParams p, Global<const T> x, Global<const T> s, \
                 Global<T> y) {                                                                              \
    await_earlier();                                                                                         \
    scale_rows<T, N>(p, x, s, y);                                                                            \
  }                                                                                                          \
  MIXTAPE_KERNEL(scale_rows_backward_s_##T##NAME, 256, ScaleRowsParams p, Global<const T> x,                 \
                 Global<const T> dy, Global<T> ds) {                                                         \
    await_earlier();                                                                                         \
    MIXTAPE_SHARED(float, scratch, 32);                                                                      \
    scale_rows_backward_s<T, N>(p, x, dy, ds, scratch);                                                      \
  }
#define KERNELS(T)                      \
  KERNELS_BY(T, _packs, 16 / sizeof(T)) \
  KERNELS_BY(T, _ones, 1)
MIXTAPE_VALUE_KERNELS(KERNELS)

}  // namespace mixtape
