// bf16 or f16 on matrix units: 128 threads, each of the four warps a quarter of 64 x 64 of a block's 128 x
// 128 tile; 64 terms of the sums at a time, three of those in shared memory.
#include "mixtape/backend/gpu/tensor.h"
#include "mixtape/ops/grouped_matmul/group_tile_gpu.h"
#include "mixtape/ops/grouped_matmul/grouped_gemm_params.h"

namespace mixtape {

constexpr int kTensorTile = kGroupTile;
constexpr int kTensorDepth = 64;
constexpr int kTileValues = kTensorTile * kTensorDepth;
using Quarter = float[4][8][4];  // 16 x 8 tiles of a warp

// Element (row, depth) at p[row * step + depth] or, where rows are dense, at p[depth * step + row].
template <class T, bool DenseRows>
struct TensorOperand {
  Global<const T> p;
  std::int64_t rows, depth, step;
};

template <bool DenseRows>
constexpr int kWidth = DenseRows ? kTensorTile : kTensorDepth;

// Starts the copy of depth [at, at + 64) to tile[row][depth], where rows are dense to tile[depth][row].
template <class T, bool DenseRows>
MIXTAPE_DEVICE void copy_tile(const TensorOperand<T, DenseRows>& in, std::int64_t at, Shared<T> tile) {
  constexpr int kChunks = kWidth<DenseRows> / 8;
  constexpr int kStep = 128 / kChunks;
  const int chunk = flat_thread() % kChunks, first = flat_thread() / kChunks;
  MIXTAPE_UNROLL
  for (int i = 0; i < kTileValues / 8 / 128; ++i) {
    const int line = first + i * kStep;
    const std::int64_t row = DenseRows ? chunk * 8 : line, depth = at + (DenseRows ? line : chunk * 8);
    const bool is_valid = row < in.rows && depth < in.depth;
    const std::int64_t from = DenseRows ? depth * in.step + row : row * in.step + depth;
    copy_async(tile, swizzled<kWidth<DenseRows>>(line, chunk), in.p + (is_valid ? from : 0), is_valid);
  }
}

template <bool DenseA, bool DenseB, class T>
MIXTAPE_DEVICE void multiply_tiles(Shared<T> a, Shared<T> b, Quarter& sums) {
  const int row = warp() / 2 * 64, col = warp() % 2 * 64;
  const int place_a = left_place<kWidth<DenseA>, DenseA>(), place_b = right_place<kWidth<DenseB>, DenseB>();
  MIXTAPE_UNROLL
  for (int depth = 0; depth < kTensorDepth; depth += 16) {
    std::uint32_t left[4][4], right[4][4];
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i)
      load_fragment<kWidth<DenseA>, DenseA>(a, place_a, row + i * 16, depth, left[i]);
    MIXTAPE_UNROLL
    for (int j = 0; j < 4; ++j)
      load_fragment<kWidth<DenseB>, DenseB>(b, place_b, col + j * 16, depth, right[j]);
    MIXTAPE_UNROLL
    for (int i = 0; i < 4; ++i) {
      MIXTAPE_UNROLL
      for (int j = 0; j < 8; ++j)
        multiply_add<T>(sums[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// sums += a b^T over the depth: while one step is multiplied, the next two are on their way.
template <class T, bool DenseA, bool DenseB>
MIXTAPE_DEVICE void add_tensor_products(const TensorOperand<T, DenseA>& a, const TensorOperand<T, DenseB>& b,
                                        Shared<T> memory, Quarter& sums) {
  const int steps = static_cast<int>((a.depth + kTensorDepth - 1) / kTensorDepth);
  const auto copy = [&](int step) {
    if (step < steps) {
      const Shared<T> stage = memory + step % kTensorStages * 2 * kTileValues;
      copy_tile(a, static_cast<std::int64_t>(step) * kTensorDepth, stage);
      copy_tile(b, static_cast<std::int64_t>(step) * kTensorDepth, stage + kTileValues);
    }
    commit_copies();
  };
  for (int step = 0; step < kTensorStages - 1; ++step) copy(step);
  for (int step = 0; step < steps; ++step) {
    wait_copies<kTensorStages - 2>();
    barrier();
    copy(step + kTensorStages - 1);
    const Shared<T> stage = memory + step % kTensorStages * 2 * kTileValues;
    multiply_tiles<DenseA, DenseB>(stage, stage + kTileValues, sums);
  }
}

// Two neighbouring 16 x 8 tiles, row g (half 0) or g + 8 (half 1).
MIXTAPE_DEVICE void store_row(const float (&left)[4], const float (&right)[4], int half, Global<float> c,
                              std::int64_t cols, bool is_row, bool accumulate) {
  const int q = lane() % 4 * 2;
  const float l[2] = {left[half * 2], left[half * 2 + 1]}, r[2] = {right[half * 2], right[half * 2 + 1]};
  if (is_row && q < cols) store_values(l, c + q, accumulate);
  if (is_row && q + 8 < cols) store_values(r, c + (q + 8), accumulate);
}
template <class C>
MIXTAPE_DEVICE void store_row(const float (&left)[4], const float (&right)[4], int half, Global<C> c,
                              std::int64_t cols, bool is_row, bool accumulate) {
  float v[4];
  const int col = gather_four(left[half * 2], left[half * 2 + 1], right[half * 2], right[half * 2 + 1], v);
  if (is_row && col < cols) store_values(v, c + col, accumulate);
}

template <class C>
MIXTAPE_DEVICE void store_quarter(const Quarter& sums, Global<C> c, std::int64_t rows, std::int64_t cols,
                                  std::int64_t step, bool accumulate) {
  const int row = warp() / 2 * 64 + lane() / 4, col = warp() % 2 * 64;
  MIXTAPE_UNROLL
  for (int i = 0; i < 4; ++i) {
    MIXTAPE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int r = row + i * 16 + half * 8;
      MIXTAPE_UNROLL
      for (int j = 0; j < 8; j += 2)
        store_row(sums[i][j], sums[i][j + 1], half, c + (r * step + col + j * 8), cols - col - j * 8,
                  r < rows, accumulate);
    }
  }
}

// A block per tile of c: rows of one expert, times its matrix.
template <bool TransB, class T, class C>
MIXTAPE_DEVICE void tensor_grouped_rows(const GroupedGemmParams& p, Global<const T> a, Global<const T> b,
                                        Global<const std::uint32_t> offsets, Global<C> c,
                                        Global<std::uint64_t> errors, Shared<T> memory,
                                        Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_n = (p.n + kTensorTile - 1) / kTensorTile, col = block_x() % tiles_n * kTensorTile;
  const GroupTile tile =
      find_group_tile(offsets, p.experts, p.rows, block_x() / tiles_n, kTensorTile, errors, scratch);
  if (tile.begin >= tile.end || (tile.is_bad && p.accumulate != 0)) return;
  const std::int64_t rows = tile.end - tile.begin;
  Quarter sums = {};
  if (!tile.is_bad) {
    const TensorOperand<T, false> left{a + tile.begin * p.k, rows, p.k, p.k};
    const TensorOperand<T, !TransB> right{b + (tile.expert * p.n * p.k + (TransB ? col * p.k : col)),
                                          p.n - col, p.k, TransB ? p.k : p.n};
    add_tensor_products(left, right, memory, sums);
  }
  store_quarter(sums, c + (tile.begin * p.n + col), rows, p.n - col, p.n, p.accumulate != 0);
}

// A block per tile of an expert's matrix: the sum over the expert's rows.
template <class T, class C>
MIXTAPE_DEVICE void tensor_grouped_weights(const GroupedGemmParams& p, Global<const T> a, Global<const T> b,
                                           Global<const std::uint32_t> offsets, Global<C> c,
                                           Global<std::uint64_t> errors, Shared<T> memory,
                                           Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_k = (p.k + kTensorTile - 1) / kTensorTile,
                     tiles_n = (p.n + kTensorTile - 1) / kTensorTile;
  const std::int64_t expert = block_x() / (tiles_k * tiles_n),
                     row = block_x() / tiles_k % tiles_n * kTensorTile,
                     col = block_x() % tiles_k * kTensorTile;
  const bool is_bad = find_group_tile(offsets, p.experts, p.rows, -1, kTensorTile, errors, scratch).is_bad;
  const std::int64_t begin = offsets[expert];
  const std::int64_t count = is_bad ? 0 : static_cast<std::int64_t>(offsets[expert + 1]) - begin;
  if (count == 0 && p.accumulate != 0) return;
  Quarter sums = {};
  if (count > 0) {
    const TensorOperand<T, true> left{a + (begin * p.n + row), p.n - row, count, p.n};
    const TensorOperand<T, true> right{b + (begin * p.k + col), p.k - col, count, p.k};
    add_tensor_products(left, right, memory, sums);
  }
  store_quarter(sums, c + ((expert * p.n + row) * p.k + col), p.n - row, p.k - col, p.k, p.accumulate != 0);
}

#define TENSOR(NAME, T, C, ...)                                                                    \
  MIXTAPE_KERNEL_BLOCKS(NAME##_##T##_##C##_tensor, 128, 2, GroupedGemmParams p, Global<const T> a, \
                        Global<const T> b, Global<const std::uint32_t> offsets, Global<C> c,       \
                        Global<std::uint64_t> errors) {                                            \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                             \
    MIXTAPE_SHARED(std::uint64_t, scratch, kGroupScratch);                                         \
    __VA_ARGS__(p, a, b, offsets, c, errors, memory, scratch);                                     \
  }
#define TENSOR_KERNELS(T, C)                                        \
  TENSOR(grouped_rows, T, C, tensor_grouped_rows<false, T, C>)      \
  TENSOR(grouped_rows_trans, T, C, tensor_grouped_rows<true, T, C>) \
  TENSOR(grouped_weights, T, C, tensor_grouped_weights<T, C>)
TENSOR_KERNELS(bf16, f32)
TENSOR_KERNELS(bf16, bf16)
TENSOR_KERNELS(f16, f32)
TENSOR_KERNELS(f16, f16)

}  // namespace mixtape
