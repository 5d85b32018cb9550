#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/outer_product/outer_product_gpu_params.h"

namespace mixtape {

// Row r of all matrices belongs to matrix r / rows.
MIXTAPE_DEVICE std::int64_t matrix_of(const OuterProductParams& p, std::int64_t row) {
  if (((row | p.rows) >> 32) == 0)
    return static_cast<std::uint32_t>(row) / static_cast<std::uint32_t>(p.rows);
  return row / p.rows;
}

// kOuterRowsOfThread rows of each thread, N columns at a time; block_y shares out a long row.
template <class T, int N>
MIXTAPE_DEVICE void outer_product_forward(const OuterProductParams& p, Global<const T> a, Global<const T> b,
                                          Global<T> y) {
  const std::int64_t first =
      (static_cast<std::int64_t>(block_x()) * threads_y() + thread_y()) * kOuterRowsOfThread;
  const std::int64_t step = static_cast<std::int64_t>(blocks_y()) * threads_x() * N;
  for (std::int64_t c = (static_cast<std::int64_t>(block_y()) * threads_x() + thread_x()) * N; c < p.cols;
       c += step) {
    Pack<T, N> held;
    std::int64_t held_matrix = -1;
    MIXTAPE_UNROLL
    for (int u = 0; u < kOuterRowsOfThread; ++u) {
      const std::int64_t row = first + u;
      if (row >= p.batch * p.rows) break;
      const std::int64_t matrix = matrix_of(p, row);
      if (matrix != held_matrix) held = load_pack<N>(b + (matrix * p.cols + c));
      held_matrix = matrix;
      const float factor = to_f32(a[row]);
      Pack<T, N> out;
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) out.v[i] = from_f32<T>(factor * to_f32(held.v[i]));
      store_pack(y + (row * p.cols + c), out);
    }
  }
}

// threads_x threads a row, N columns at a time.
template <class T, int N>
MIXTAPE_DEVICE void outer_product_backward_a(const OuterProductParams& p, Global<const T> b,
                                             Global<const T> dy, Global<T> da, Shared<float> scratch) {
  const std::int64_t row = row_index(), cols = row < p.batch * p.rows ? p.cols : 0;
  const Global<const T> in = dy + row * p.cols;
  const Global<const T> with = b + (cols > 0 ? matrix_of(p, row) * p.cols : 0);
  float dot = 0.0f;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = thread_x() * N; c < cols; c += static_cast<std::int64_t>(threads_x()) * N) {
    const Pack<T, N> x = load_pack<N>(in + c), w = load_pack<N>(with + c);
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) dot = fma_f32(to_f32(x.v[i]), to_f32(w.v[i]), dot);
  }
  dot = row_sum(dot, scratch);
  if (cols == 0 || thread_x() != 0) return;
  da[row] = from_f32<T>(p.accumulate != 0 ? to_f32(da[row]) + dot : dot);
}

// Sums over kOuterRows rows of one matrix: partials [batch, blocks, cols]. Every threads_y-th row of the
// block is one thread's; their sums are added in order. block_y shares out a long row.
template <class T, int N>
MIXTAPE_DEVICE void outer_product_row_sums(const OuterProductParams& p, Global<const T> a, Global<const T> dy,
                                           Global<float> partials, Shared<float> rows) {
  const std::int64_t matrix = block_x() / p.blocks(), begin = block_x() % p.blocks() * kOuterRows;
  const std::int64_t end = begin + kOuterRows < p.rows ? begin + kOuterRows : p.rows;
  const std::int64_t width = static_cast<std::int64_t>(threads_x()) * N;
  for (std::int64_t first = block_y() * width; first < p.cols; first += blocks_y() * width) {
    const std::int64_t c = first + thread_x() * N;
    float sum[N] = {};
    if (c < p.cols) {
      MIXTAPE_UNROLL_4
      for (std::int64_t r = begin + thread_y(); r < end; r += threads_y()) {
        const std::int64_t row = matrix * p.rows + r;
        const Pack<T, N> x = load_pack<N>(dy + (row * p.cols + c));
        const float factor = to_f32(a[row]);
        MIXTAPE_UNROLL
        for (int i = 0; i < N; ++i) sum[i] = fma_f32(to_f32(x.v[i]), factor, sum[i]);
      }
    }
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) rows[thread_y() * width + thread_x() * N + i] = sum[i];
    barrier();
    for (std::int64_t i = flat_thread(); i < width && first + i < p.cols; i += block_threads()) {
      float total = 0.0f;
      for (int y = 0; y < threads_y(); ++y) total += rows[y * width + i];
      partials[block_x() * p.cols + first + i] = total;
    }
    barrier();
  }
}

#define KERNELS_BY(T, NAME, N)                                                                     \
  MIXTAPE_KERNEL(outer_product_forward_##T##NAME, 256, OuterProductParams p, Global<const T> a,    \
                 Global<const T> b, Global<T> y) {                                                 \
    outer_product_forward<T, N>(p, a, b, y);                                                       \
  }                                                                                                \
  MIXTAPE_KERNEL(outer_product_backward_a_##T##NAME, 256, OuterProductParams p, Global<const T> b, \
                 Global<const T> dy, Global<T> da) {                                               \
    MIXTAPE_SHARED(float, scratch, 32);                                                            \
    outer_product_backward_a<T, N>(p, b, dy, da, scratch);                                         \
  }                                                                                                \
  MIXTAPE_KERNEL(outer_product_row_sums_##T##NAME, 256, OuterProductParams p, Global<const T> a,   \
                 Global<const T> dy, Global<float> partials) {                                     \
    MIXTAPE_SHARED(float, rows, 256 * N);                                                          \
    outer_product_row_sums<T, N>(p, a, dy, partials, rows);                                        \
  }
#define KERNELS(T)                        \
  KERNELS_BY(T, _packs, (16 / sizeof(T))) \
  KERNELS_BY(T, _ones, 1)
MIXTAPE_VALUE_KERNELS(KERNELS)

// The blocks of each matrix added in order, one element of db per thread.
template <class T>
MIXTAPE_DEVICE void outer_product_add_blocks(const OuterProductParams& p, Global<const float> partials,
                                             Global<T> db) {
  constexpr int kAhead = 8;
  const std::int64_t blocks = p.blocks();
  for (std::int64_t i = global_thread(); i < p.batch * p.cols; i += grid_threads()) {
    const std::int64_t matrix = i / p.cols, at = matrix * blocks * p.cols + (i - matrix * p.cols);
    float total = 0.0f;
    for (std::int64_t first = 0; first < blocks; first += kAhead) {
      float part[kAhead];
      MIXTAPE_UNROLL
      for (int u = 0; u < kAhead; ++u)
        part[u] = first + u < blocks ? static_cast<float>(partials[at + (first + u) * p.cols]) : 0.0f;
      MIXTAPE_UNROLL
      for (int u = 0; u < kAhead; ++u) total += part[u];
    }
    db[i] = from_f32<T>(p.accumulate != 0 ? to_f32(db[i]) + total : total);
  }
}
#define ADD_BLOCKS(T)                                                                                   \
  MIXTAPE_KERNEL(outer_product_add_blocks_##T, 256, OuterProductParams p, Global<const float> partials, \
                 Global<T> db) {                                                                        \
    outer_product_add_blocks<T>(p, partials, db);                                                       \
  }
MIXTAPE_VALUE_KERNELS(ADD_BLOCKS)

}  // namespace mixtape
