// What the grouped products on matrix units share: a block makes a tile of 128 x 128 of the result, 64 terms of the sums at
// a time.
#pragma once

#include "mixtape/backend/gpu/tensor.h"
#include "mixtape/ops/grouped_matmul/group_tile_gpu.h"
#include "mixtape/ops/grouped_matmul/grouped_gemm_params.h"

namespace mixtape {

constexpr int kTensorDepth = 64;
constexpr int kMostRanked = 128;  // experts, see expert_of_rank
constexpr int kTileScratch =
    136;  // words of a block: find_group_tile's or the ranked experts', behind them a tile's

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
};

// A thread's share of the copies of an operand's tiles, one after the other: 8 chunks of a line are neighbours' work. Layout
// says where lines lie in shared memory. With `Keeps` the lines' places are kept: who multiplies too has no time to find
// them anew, who only copies no registers.
template <class T, bool DenseRows, class Layout, int Threads, bool Keeps>
class TileCopies {
 public:
  using Operand = TensorOperand<T, DenseRows>;

  MIXTAPE_DEVICE explicit TileCopies(const Operand& in)
      : from_(in.p),
        nothing_(in.p),
        depth_(static_cast<int>(in.depth)),
        step_(static_cast<int>(in.step)),
        last_(static_cast<int>(in.rows < kGroupTile ? in.rows : kGroupTile) - 1),
        chunk_(flat_thread() % Threads % 8),
        first_(flat_thread() % Threads / 8) {
    to_ = Layout::template place<Operand>(first_, chunk_);
    MIXTAPE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      const int chunk = chunk_ + 8 * h;
      column_[h] = (DenseRows && chunk > last_ / 8 ? last_ / 8 : chunk) * 8;
    }
    MIXTAPE_UNROLL
    for (int i = 0; i < (Keeps ? kLines : 0); ++i) line_[i] = line(i, first_);
  }

  // Starts the copy of the next tile; zeros where the depth has ended.
  MIXTAPE_DEVICE void next(Shared<T> tile) {
    const int left = depth_;
    if (left >= kTensorDepth) {
      copy(tile, [](int) { return true; });
    } else if (DenseRows) {
      copy(tile, [&](int i) { return first_ + i * kLineStep < left; });
    } else {
      copy(tile, [&](int) { return chunk_ * 8 < left; });
    }
    depth_ -= kTensorDepth;
    from_ = from_ + (DenseRows ? std::int64_t{kTensorDepth} * step_ : kTensorDepth);
  }

 private:
  static constexpr int kHalves = Operand::kWidth / 64;
  static constexpr int kLineStep = Threads / 8;
  static constexpr int kLines = Operand::kLines / kLineStep;
  static_assert(kLineStep % 8 == 0, "the swizzle of a thread's lines is the same");

  // Past the last row that row again: what it gives there is not stored.
  MIXTAPE_DEVICE int line(int i, int first) const {
    const int line = first + i * kLineStep;
    return (DenseRows || line < last_ ? line : last_) * step_;
  }

  template <class IsThere>
  MIXTAPE_DEVICE void copy(Shared<T> tile, const IsThere& is_there) const {
    const int first = Keeps ? first_ : hidden(first_);
    MIXTAPE_UNROLL
    for (int h = 0; h < kHalves; ++h) {
      MIXTAPE_UNROLL
      for (int i = 0; i < kLines; ++i) {
        const bool is = is_there(i);
        const int from = (Keeps ? line_[i] : line(i, first)) + column_[h];
        copy_async(
            tile, to_ + h * Layout::template kHalf<Operand> + i * kLineStep * Layout::template kLine<Operand>,
            is ? from_ + from : nothing_, is);
      }
    }
  }

  Global<const T> from_, nothing_;
  int depth_, step_, last_, chunk_, first_;  // depth_: what is left of it
  int to_ = 0, column_[kHalves] = {}, line_[Keeps ? kLines : 1] = {};
};

// multiply(a, b) adds the products of a step's tiles, for all steps of the depth: while one step is multiplied, the next two
// are on their way. arrived() makes what came visible to the products.
template <class Layout, int Threads, class T, bool DenseA, bool DenseB, class Arrived, class Multiply>
MIXTAPE_DEVICE void over_depth(const TensorOperand<T, DenseA>& a, const TensorOperand<T, DenseB>& b,
                               Shared<T> memory, const Arrived& arrived, const Multiply& multiply) {
  constexpr int kTile = TensorOperand<T, DenseA>::kValues;
  const int steps = static_cast<int>((a.depth + kTensorDepth - 1) / kTensorDepth);
  TileCopies<T, DenseA, Layout, Threads, true> left(a);
  TileCopies<T, DenseB, Layout, Threads, true> right(b);
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

// Where the sums of a tile go: element (row, col) to p[row * step + col], where there is one.
template <class C>
struct TileOfResult {
  Global<C> p;
  std::int64_t rows, cols, step;
  bool accumulate;
};

// A block per tile of c: rows of one expert, times its matrix. Sums makes a tile: Sums::make(left, right, tile of c,
// memory, words).
template <class Sums, bool TransB, class T, class C>
MIXTAPE_DEVICE void tensor_grouped_rows(const GroupedGemmParams& p, Global<const T> a, Global<const T> b,
                                        Global<const std::uint32_t> offsets, Global<C> c,
                                        Global<std::uint64_t> errors, Shared<T> memory,
                                        Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_n = (p.n + kGroupTile - 1) / kGroupTile, col = block_x() % tiles_n * kGroupTile;
  const GroupTile tile =
      find_group_tile(offsets, p.experts, p.rows, block_x() / tiles_n, kGroupTile, errors, scratch);
  if (tile.begin >= tile.end || (tile.is_bad && p.accumulate != 0)) return;
  const std::int64_t rows = tile.end - tile.begin, expert = tile.is_bad ? 0 : tile.expert;
  const std::int64_t depth = tile.is_bad ? 0 : p.k;
  const TensorOperand<T, false> left{a + tile.begin * p.k, rows, depth, p.k};
  const TensorOperand<T, !TransB> right{b + (expert * p.n * p.k + (TransB ? col * p.k : col)), p.n - col,
                                        depth, TransB ? p.k : p.n};
  const TileOfResult<C> out{c + (tile.begin * p.n + col), rows, p.n - col, p.n, p.accumulate != 0};
  Sums::make(left, right, out, memory, scratch + kMostRanked + 1);
}

// The expert of `rank`, by how many rows it has, the one with the most first: so the last blocks of a launch are the
// short ones. Of many experts as they come.
MIXTAPE_DEVICE std::int64_t expert_of_rank(Global<const std::uint32_t> offsets, std::int64_t experts,
                                           std::int64_t rank, Shared<std::uint64_t> scratch) {
  if (experts > kMostRanked) return rank;
  const int mine = flat_thread();
  if (mine < experts) scratch[mine] = static_cast<std::uint64_t>(offsets[mine + 1]) - offsets[mine];
  barrier();
  if (mine < experts) {
    const std::uint64_t size = scratch[mine];
    int before = 0;
    for (int e = 0; e < experts; ++e) {
      const std::uint64_t other = scratch[e];
      before += other > size || (other == size && e < mine) ? 1 : 0;
    }
    if (before == rank) scratch[kMostRanked] = static_cast<std::uint64_t>(mine);
  }
  barrier();
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(scratch[kMostRanked]));
}

// A block per tile of an expert's matrix: the sum over the expert's rows.
template <class Sums, class T, class C>
MIXTAPE_DEVICE void tensor_grouped_weights(const GroupedGemmParams& p, Global<const T> a, Global<const T> b,
                                           Global<const std::uint32_t> offsets, Global<C> c,
                                           Global<std::uint64_t> errors, Shared<T> memory,
                                           Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_k = (p.k + kGroupTile - 1) / kGroupTile,
                     tiles_n = (p.n + kGroupTile - 1) / kGroupTile;
  const std::int64_t row = block_x() / tiles_k % tiles_n * kGroupTile, col = block_x() % tiles_k * kGroupTile;
  const bool is_bad = find_group_tile(offsets, p.experts, p.rows, -1, kGroupTile, errors, scratch).is_bad;
  const std::int64_t expert = expert_of_rank(offsets, p.experts, block_x() / (tiles_k * tiles_n), scratch);
  const std::int64_t begin = offsets[expert];
  const std::int64_t count = is_bad ? 0 : static_cast<std::int64_t>(offsets[expert + 1]) - begin;
  if (count == 0 && p.accumulate != 0) return;
  const std::int64_t first = is_bad ? 0 : begin;
  const TensorOperand<T, true> left{a + (first * p.n + row), p.n - row, count, p.n};
  const TensorOperand<T, true> right{b + (first * p.k + col), p.k - col, count, p.k};
  const TileOfResult<C> out{c + ((expert * p.n + row) * p.k + col), p.n - row, p.k - col, p.k,
                            p.accumulate != 0};
  Sums::make(left, right, out, memory, scratch + kMostRanked + 1);
}

// KIND: the kernels' last word; SUMS<T>: a block's tile, with THREADS threads.
#define MIXTAPE_GROUPED(NAME, KIND, THREADS, T, C, ...)                                                \
  MIXTAPE_KERNEL_BLOCKS(NAME##_##T##_##C##_##KIND, THREADS, 2, GroupedGemmParams p, Global<const T> a, \
                        Global<const T> b, Global<const std::uint32_t> offsets, Global<C> c,           \
                        Global<std::uint64_t> errors) {                                                \
    MIXTAPE_SHARED_DYNAMIC(T, memory);                                                                 \
    MIXTAPE_SHARED(std::uint64_t, scratch, kTileScratch);                                              \
    __VA_ARGS__(p, a, b, offsets, c, errors, memory, scratch);                                         \
  }
#define MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, T, C)                                           \
  MIXTAPE_GROUPED(grouped_rows, KIND, THREADS, T, C, tensor_grouped_rows<SUMS<T>, false, T, C>)      \
  MIXTAPE_GROUPED(grouped_rows_trans, KIND, THREADS, T, C, tensor_grouped_rows<SUMS<T>, true, T, C>) \
  MIXTAPE_GROUPED(grouped_weights, KIND, THREADS, T, C, tensor_grouped_weights<SUMS<T>, T, C>)
#define MIXTAPE_GROUPED_TYPES(KIND, THREADS, SUMS)         \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, bf16, f32)  \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, bf16, bf16) \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, f16, f32)   \
  MIXTAPE_GROUPED_KERNELS(KIND, THREADS, SUMS, f16, f16)

}  // namespace mixtape
