#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/grouped_matmul/group_tile_gpu.h"
#include "mixtape/ops/grouped_matmul/grouped_gemm_params.h"

namespace mixtape {

constexpr int kTile = kGroupTile;
constexpr int kDepth = 16;  // terms of the sums that are in shared memory at a time
constexpr int kPitch = kTile + 4;
constexpr int kHeld = kTile * kDepth / 256;

// Element (row, depth) at p[row * row_step + depth * depth_step]; one of the steps is 1.
template <class T>
struct Operand {
  Global<const T> p;
  std::int64_t rows, row_step, depth_step;
};

// Where thread t's element i of a [kTile, kDepth] tile lies: neighbours in memory for neighbouring threads.
MIXTAPE_DEVICE int tile_row(int i, bool is_depth_dense) {
  const int flat = i * 256 + flat_thread();
  return is_depth_dense ? flat / kDepth : flat % kTile;
}
MIXTAPE_DEVICE int tile_depth(int i, bool is_depth_dense) {
  const int flat = i * 256 + flat_thread();
  return is_depth_dense ? flat % kDepth : flat / kTile;
}

template <class T>
MIXTAPE_DEVICE void load_tile(const Operand<T>& in, std::int64_t depth, std::int64_t at,
                              float (&held)[kHeld]) {
  MIXTAPE_UNROLL
  for (int i = 0; i < kHeld; ++i) {
    const int row = tile_row(i, in.depth_step == 1);
    const std::int64_t d = at + tile_depth(i, in.depth_step == 1);
    held[i] = row < in.rows && d < depth ? to_f32(in.p[row * in.row_step + d * in.depth_step]) : 0.0f;
  }
}

MIXTAPE_DEVICE void keep_tile(bool is_depth_dense, const float (&held)[kHeld], Shared<float> tile) {
  MIXTAPE_UNROLL
  for (int i = 0; i < kHeld; ++i)
    tile[tile_depth(i, is_depth_dense) * kPitch + tile_row(i, is_depth_dense)] = held[i];
}

// Rows and columns of the result that a thread holds: 4 and, 64 further, 4.
MIXTAPE_DEVICE int held_index(int thread, int i) { return i / 4 * (kTile / 2) + thread * 4 + i % 4; }

// sums[i][j] += sum over depth of a(row i, d) b(row j, d). The next tiles are on their way during a sum.
template <class A, class B>
MIXTAPE_DEVICE void add_products(const Operand<A>& a, const Operand<B>& b, std::int64_t depth,
                                 Shared<float> tile_a, Shared<float> tile_b, float (&sums)[8][8]) {
  const int x = flat_thread() % 16, y = flat_thread() / 16;
  float held_a[kHeld], held_b[kHeld];
  load_tile(a, depth, 0, held_a);
  load_tile(b, depth, 0, held_b);
  for (std::int64_t at = 0; at < depth; at += kDepth) {
    barrier();
    keep_tile(a.depth_step == 1, held_a, tile_a);
    keep_tile(b.depth_step == 1, held_b, tile_b);
    barrier();
    load_tile(a, depth, at + kDepth, held_a);
    load_tile(b, depth, at + kDepth, held_b);
    for (int d = 0; d < kDepth; ++d) {
      float va[8], vb[8];
      MIXTAPE_UNROLL
      for (int quad = 0; quad < 2; ++quad) {
        const auto pack_a = load_pack<4>(tile_a + (d * kPitch + held_index(y, quad * 4)));
        const auto pack_b = load_pack<4>(tile_b + (d * kPitch + held_index(x, quad * 4)));
        MIXTAPE_UNROLL
        for (int i = 0; i < 4; ++i) {
          va[quad * 4 + i] = pack_a.v[i];
          vb[quad * 4 + i] = pack_b.v[i];
        }
      }
      MIXTAPE_UNROLL
      for (int i = 0; i < 8; ++i) {
        MIXTAPE_UNROLL
        for (int j = 0; j < 8; ++j) sums[i][j] = fma_f32(va[i], vb[j], sums[i][j]);
      }
    }
  }
}

template <class T>
MIXTAPE_DEVICE void store_sums(const float (&sums)[8][8], Global<T> c, std::int64_t rows, std::int64_t cols,
                               std::int64_t row_step, bool accumulate) {
  const int x = flat_thread() % 16, y = flat_thread() / 16;
  MIXTAPE_UNROLL
  for (int i = 0; i < 8; ++i) {
    MIXTAPE_UNROLL
    for (int j = 0; j < 8; ++j) {
      const int row = held_index(y, i), col = held_index(x, j);
      if (row >= rows || col >= cols) continue;
      const std::int64_t at = row * row_step + col;
      c[at] = from_f32<T>(accumulate ? to_f32(c[at]) + sums[i][j] : sums[i][j]);
    }
  }
}

// A block per tile of c: rows of one expert, times its matrix.
template <class A, class B, class C>
MIXTAPE_DEVICE void grouped_rows(const GroupedGemmParams& p, Global<const A> a, Global<const B> b,
                                 Global<const std::uint32_t> offsets, Global<C> c,
                                 Global<std::uint64_t> errors, Shared<float> tile_a, Shared<float> tile_b,
                                 Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_n = (p.n + kTile - 1) / kTile, col = block_x() % tiles_n * kTile;
  const GroupTile tile =
      find_group_tile(offsets, p.experts, p.rows, block_x() / tiles_n, kTile, errors, scratch);
  if (tile.begin >= tile.end || (tile.is_bad && p.accumulate != 0)) return;
  float sums[8][8] = {};
  if (!tile.is_bad) {
    const bool dense = p.trans_b != 0;
    const Operand<A> in{a + tile.begin * p.k, tile.end - tile.begin, p.k, 1};
    const Operand<B> weights{b + (tile.expert * p.n * p.k + (dense ? col * p.k : col)), p.n - col,
                             dense ? p.k : 1, dense ? 1 : p.n};
    add_products(in, weights, p.k, tile_a, tile_b, sums);
  }
  store_sums(sums, c + (tile.begin * p.n + col), tile.end - tile.begin, p.n - col, p.n, p.accumulate != 0);
}

// A block per tile of an expert's matrix: the sum over the expert's rows.
template <class A, class B, class C>
MIXTAPE_DEVICE void grouped_weights(const GroupedGemmParams& p, Global<const A> a, Global<const B> b,
                                    Global<const std::uint32_t> offsets, Global<C> c,
                                    Global<std::uint64_t> errors, Shared<float> tile_a, Shared<float> tile_b,
                                    Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_k = (p.k + kTile - 1) / kTile, tiles_n = (p.n + kTile - 1) / kTile;
  const std::int64_t expert = block_x() / (tiles_k * tiles_n), row = block_x() / tiles_k % tiles_n * kTile,
                     col = block_x() % tiles_k * kTile;
  const bool is_bad = find_group_tile(offsets, p.experts, p.rows, -1, kTile, errors, scratch).is_bad;
  const std::int64_t begin = offsets[expert];
  const std::int64_t count = is_bad ? 0 : static_cast<std::int64_t>(offsets[expert + 1]) - begin;
  if (count == 0 && p.accumulate != 0) return;
  float sums[8][8] = {};
  if (count > 0) {
    const Operand<A> in{a + (begin * p.n + row), p.n - row, 1, p.n};
    const Operand<B> weights{b + (begin * p.k + col), p.k - col, 1, p.k};
    add_products(in, weights, count, tile_a, tile_b, sums);
  }
  store_sums(sums, c + ((expert * p.n + row) * p.k + col), p.n - row, p.k - col, p.k, p.accumulate != 0);
}

#define GROUPED(KIND, A, B, C)                                                                           \
  MIXTAPE_KERNEL(KIND##_##A##_##B##_##C, 256, GroupedGemmParams p, Global<const A> a, Global<const B> b, \
                 Global<const std::uint32_t> offsets, Global<C> c, Global<std::uint64_t> errors) {       \
    MIXTAPE_SHARED(float, tile_a, kDepth* kPitch);                                                       \
    MIXTAPE_SHARED(float, tile_b, kDepth* kPitch);                                                       \
    MIXTAPE_SHARED(std::uint64_t, scratch, kGroupScratch);                                               \
    KIND<A, B, C>(p, a, b, offsets, c, errors, tile_a, tile_b, scratch);                                 \
  }
#define GROUPED_HALVES(KIND, H) \
  GROUPED(KIND, H, H, H)        \
  GROUPED(KIND, H, H, f32)      \
  GROUPED(KIND, f32, H, H)      \
  GROUPED(KIND, f32, H, f32)
#define GROUPED_TYPES(KIND)    \
  GROUPED(KIND, f32, f32, f32) \
  GROUPED_HALVES(KIND, bf16)   \
  GROUPED_HALVES(KIND, f16)
GROUPED_TYPES(grouped_rows)
GROUPED_TYPES(grouped_weights)

}  // namespace mixtape
