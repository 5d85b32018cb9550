// What the grouped products on matrix units share: a block makes a tile of 128 x 128 of the result, 64 terms of the sums at
// a time.
#pragma once

#include "mixtape/backend/gpu/tensor.h"
#include "mixtape/ops/grouped_matmul/group_tile_gpu.h"
#include "mixtape/ops/grouped_matmul/grouped_gemm_params.h"

namespace mixtape {

constexpr int kTensorDepth = 64;

// Element (row, depth) at p[row * step + depth] or, where rows are dense, at p[depth * step + row]. A tile of it is
// tile[row][depth], where rows are dense tile[depth][row].
template <class T, bool DenseRows>
struct TensorOperand {
  static constexpr bool kIsDense = DenseRows;
  static constexpr int kLines = DenseRows ? kTensorDepth : kGroupTile;
  static constexpr int kWidth = DenseRows ? kGroupTile : kTensorDepth;
  static constexpr int kValues = kLines * kWidth;
  Global<const T> p;
  std::int64_t rows, depth, step;

  // The lines of the tile from `at` terms on.
  MIXTAPE_DEVICE TensorRows<T> from(std::int64_t at) const {
    const std::int64_t terms = depth - at, lines = DenseRows ? terms : rows, width = DenseRows ? rows : terms;
    return {p + (DenseRows ? at * step : at), static_cast<int>(step),
            static_cast<int>(lines < kLines ? lines : kLines),
            static_cast<int>(width < kWidth ? width : kWidth)};
  }
};

// A thread's share of the copies of an operand's tiles, one after the other. Layout says where lines lie in shared memory.
// Of whole tiles it keeps the addresses: finding them anew took as many instructions as the matrix units leave time for.
template <class T, bool DenseRows, class Layout, int Threads>
class TileCopies {
 public:
  using Operand = TensorOperand<T, DenseRows>;

  MIXTAPE_DEVICE explicit TileCopies(const Operand& in) : in_(in) {
    const int chunk = flat_thread() % kChunks, first = flat_thread() / kChunks;
    const int last = static_cast<int>(in.rows < kGroupTile ? in.rows : kGroupTile) - 1;
    to_ = Layout::template place<Operand>(first, chunk);
    // Past the last row that row again: what it gives there is not stored.
    const int column = DenseRows && chunk > last / 8 ? last / 8 : chunk;
    from_ = in.p + column * 8;
    MIXTAPE_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const int line = first + i * kLineStep;
      line_[i] = (DenseRows || line < last ? line : last) * static_cast<int>(in.step);
    }
  }

  // Starts the copy of the next tile.
  MIXTAPE_DEVICE void next(Shared<T> tile) {
    if (at_ + kTensorDepth <= in_.depth) {
      MIXTAPE_UNROLL
      for (int i = 0; i < kCopies; ++i)
        copy_async(tile, to_ + i * kLineStep * Layout::template kLine<Operand>, from_ + line_[i], true);
    } else {
      copy_rows_to<Operand::kWidth, Layout::template kLine<Operand>, Operand::kLines, Threads>(
          in_.from(at_), tile,
          [](int line, int chunk) { return Layout::template place<Operand>(line, chunk); });
    }
    at_ += kTensorDepth;
    from_ = from_ + (DenseRows ? kTensorDepth * in_.step : kTensorDepth);
  }

 private:
  static constexpr int kChunks = Operand::kWidth / 8;
  static constexpr int kLineStep = Threads / kChunks;
  static constexpr int kCopies = Operand::kLines / kLineStep;
  Operand in_;
  std::int64_t at_ = 0;
  Global<const T> from_{};
  int to_ = 0, line_[kCopies] = {};
};

// multiply(a, b) adds the products of a step's tiles, for all steps of the depth: while one step is multiplied, the next two
// are on their way. arrived() makes what came visible to the products.
template <class Layout, int Threads, class T, bool DenseA, bool DenseB, class Arrived, class Multiply>
MIXTAPE_DEVICE void over_depth(const TensorOperand<T, DenseA>& a, const TensorOperand<T, DenseB>& b,
                               Shared<T> memory, const Arrived& arrived, const Multiply& multiply) {
  constexpr int kTile = TensorOperand<T, DenseA>::kValues;
  const int steps = static_cast<int>((a.depth + kTensorDepth - 1) / kTensorDepth);
  TileCopies<T, DenseA, Layout, Threads> left(a);
  TileCopies<T, DenseB, Layout, Threads> right(b);
  int to = 0, from = 0;  // stages
  const auto after = [](int stage) { return stage + 1 == kTensorStages ? 0 : stage + 1; };
  const auto copy = [&](bool is_one) {
    if (is_one) {
      left.next(memory + to * 2 * kTile);
      right.next(memory + (to * 2 + 1) * kTile);
      to = after(to);
    }
    commit_copies();
  };
  for (int step = 0; step < kTensorStages - 1; ++step) copy(step < steps);
  MIXTAPE_ROLLED
  for (int step = 0; step < steps; ++step) {
    wait_copies<kTensorStages - 2>();
    arrived();
    barrier();
    copy(step + kTensorStages - 1 < steps);
    multiply(memory + from * 2 * kTile, memory + (from * 2 + 1) * kTile);
    from = after(from);
  }
}

// Row g (half 0) or g + 8 (half 1) of 16 x 8 tiles, neighbours two by two. What is added to is loaded for eight tiles before
// the first of their stores: loads after it would wait for each other.
template <int Tiles, class C>
MIXTAPE_DEVICE void store_tiles(const float (&sums)[Tiles][4], int half, Global<C> c, std::int64_t cols,
                                bool is_row, bool accumulate) {
  const int place = gathered_column();
  MIXTAPE_UNROLL
  for (int tile = 0; tile < Tiles; tile += 8) {
    const int left_of = tile * 8 + place;
    Pack<C, 4> before[4];
    MIXTAPE_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (accumulate && is_row && left_of + j * 16 < cols) before[j] = load_pack<4>(c + (left_of + j * 16));
    }
    MIXTAPE_UNROLL
    for (int j = 0; j < 4; ++j) {
      const float(&left)[4] = sums[tile + 2 * j], (&right)[4] = sums[tile + 2 * j + 1];
      float v[4];
      gather_four(left[half * 2], left[half * 2 + 1], right[half * 2], right[half * 2 + 1], v);
      if (!is_row || left_of + j * 16 >= cols) continue;
      Pack<C, 4> out;
      MIXTAPE_UNROLL
      for (int i = 0; i < 4; ++i) out.v[i] = from_f32<C>(accumulate ? to_f32(before[j].v[i]) + v[i] : v[i]);
      store_pack(c + (left_of + j * 16), out);
    }
  }
}

// A block per tile of c: rows of one expert, times its matrix, of one or two products. Sums, a tile of them, knows how to add
// and to store.
template <class Sums, bool TransB, int Products, class T, class C>
MIXTAPE_DEVICE void tensor_grouped_rows(const GroupedGemmParams& p, const GroupedReads<T, T>& in,
                                        Global<const std::uint32_t> offsets, Global<C> c,
                                        Global<std::uint64_t> errors, Shared<T> memory,
                                        Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_n = (p.n + kGroupTile - 1) / kGroupTile, col = block_x() % tiles_n * kGroupTile;
  const GroupTile tile =
      find_group_tile(offsets, p.experts, p.rows, block_x() / tiles_n, kGroupTile, errors, scratch);
  if (tile.begin >= tile.end || (tile.is_bad && p.accumulate != 0)) return;
  const std::int64_t rows = tile.end - tile.begin;
  Sums sums;
  MIXTAPE_ROLLED
  for (int i = 0; i < (tile.is_bad ? 0 : Products); ++i) {
    if (i > 0) barrier();  // before the memory is written anew
    const TensorOperand<T, false> left{(i == 0 ? in.a : in.a2) + tile.begin * p.k, rows, p.k, p.k};
    const TensorOperand<T, !TransB> right{
        (i == 0 ? in.b : in.b2) + (tile.expert * p.n * p.k + (TransB ? col * p.k : col)), p.n - col, p.k,
        TransB ? p.k : p.n};
    sums.add(left, right, memory);
  }
  sums.store(c + (tile.begin * p.n + col), rows, p.n - col, p.n, p.accumulate != 0);
}

// A block per tile of an expert's matrix: the sum over the expert's rows.
template <class Sums, class T, class C>
MIXTAPE_DEVICE void tensor_grouped_weights(const GroupedGemmParams& p, const GroupedReads<T, T>& in,
                                           Global<const std::uint32_t> offsets, Global<C> c,
                                           Global<std::uint64_t> errors, Shared<T> memory,
                                           Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_k = (p.k + kGroupTile - 1) / kGroupTile,
                     tiles_n = (p.n + kGroupTile - 1) / kGroupTile;
  const std::int64_t expert = block_x() / (tiles_k * tiles_n),
                     row = block_x() / tiles_k % tiles_n * kGroupTile, col = block_x() % tiles_k * kGroupTile;
  const bool is_bad = find_group_tile(offsets, p.experts, p.rows, -1, kGroupTile, errors, scratch).is_bad;
  const std::int64_t begin = offsets[expert];
  const std::int64_t count = is_bad ? 0 : static_cast<std::int64_t>(offsets[expert + 1]) - begin;
  if (count == 0 && p.accumulate != 0) return;
  Sums sums;
  if (count > 0) {
    const TensorOperand<T, true> left{in.a + (begin * p.n + row), p.n - row, count, p.n};
    const TensorOperand<T, true> right{in.b + (begin * p.k + col), p.k - col, count, p.k};
    sums.add(left, right, memory);
  }
  sums.store(c + ((expert * p.n + row) * p.k + col), p.n - row, p.k - col, p.k, p.accumulate != 0);
}

// KIND: the kernels' last word; SUMS<T>: a block's tile, with THREADS threads.
#define MIXTAPE_GROUPED(NAME, KIND, THREADS, T, C, ...)                                                \
  MIXTAPE_KERNEL_BLOCKS(NAME##_##T##_##C##_##KIND, THREADS, 2, GroupedGemmParams p, Global<const T> a, \
                        Global<const T> b, Global<const std::uint32_t> offsets, Global<C> c,           \
                        Global<std::uint64_t> errors, Global<const T> a2, Global<const T> b2) {        \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                                 \
    MIXTAPE_SHARED(std::uint64_t, scratch, kGroupScratch);                                             \
    __VA_ARGS__(p, {a, b, a2, b2}, offsets, c, errors, memory, scratch);                               \
  }
#define MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, T, C)                                              \
  MIXTAPE_GROUPED(grouped_rows, KIND, THREADS, T, C, tensor_grouped_rows<SUMS<T>, false, 1, T, C>)      \
  MIXTAPE_GROUPED(grouped_rows_trans, KIND, THREADS, T, C, tensor_grouped_rows<SUMS<T>, true, 1, T, C>) \
  MIXTAPE_GROUPED(grouped_rows_pair, KIND, THREADS, T, C, tensor_grouped_rows<SUMS<T>, false, 2, T, C>) \
  MIXTAPE_GROUPED(grouped_weights, KIND, THREADS, T, C, tensor_grouped_weights<SUMS<T>, T, C>)
#define MIXTAPE_GROUPED_TYPES(KIND, THREADS, SUMS)         \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, bf16, f32)  \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, bf16, bf16) \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, f16, f32)   \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, f16, f16)

}  // namespace mixtape
