#include "mixtape/backend/gpu/product_tile.h"
#include "mixtape/ops/grouped_matmul/group_tile_gpu.h"
#include "mixtape/ops/grouped_matmul/grouped_gemm_params.h"

namespace mixtape {

static_assert(kGroupTile == kProductTile);

// A block per tile of c: rows of one expert, times its matrix, of one or two products.
template <int Products, class A, class B, class C>
MIXTAPE_DEVICE void grouped_products(const GroupedGemmParams& p, const GroupedReads<A, B>& in,
                                     Global<const std::uint32_t> offsets, Global<C> c,
                                     Global<std::uint64_t> errors, Shared<float> tile_a, Shared<float> tile_b,
                                     Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_n = (p.n + kProductTile - 1) / kProductTile,
                     col = block_x() % tiles_n * kProductTile;
  const GroupTile tile =
      find_group_tile(offsets, p.experts, p.rows, block_x() / tiles_n, kProductTile, errors, scratch);
  if (tile.begin >= tile.end || (tile.is_bad && p.accumulate != 0)) return;
  float sums[8][8] = {};
  const bool dense = p.trans_b != 0;
  MIXTAPE_ROLLED
  for (int i = 0; i < (tile.is_bad ? 0 : Products); ++i) {
    const ProductOperand<A> rows{(i == 0 ? in.a : in.a2) + tile.begin * p.k, tile.end - tile.begin, p.k, 1};
    const ProductOperand<B> weights{
        (i == 0 ? in.b : in.b2) + (tile.expert * p.n * p.k + (dense ? col * p.k : col)), p.n - col,
        dense ? p.k : 1, dense ? 1 : p.n};
    add_tile_products(rows, weights, p.k, tile_a, tile_b, sums);
  }
  const Global<C> out = c + (tile.begin * p.n + col);
  store_tile_sums<C>(sums, out, out, tile.end - tile.begin, p.n - col, p.n, p.accumulate != 0);
}

template <class A, class B, class C, class... Rest>
MIXTAPE_DEVICE void grouped_rows(const GroupedGemmParams& p, const GroupedReads<A, B>& in, Rest... rest) {
  grouped_products<1, A, B, C>(p, in, rest...);
}
template <class A, class B, class C, class... Rest>
MIXTAPE_DEVICE void grouped_rows_pair(const GroupedGemmParams& p, const GroupedReads<A, B>& in,
                                      Rest... rest) {
  grouped_products<2, A, B, C>(p, in, rest...);
}

// A block per tile of an expert's matrix: the sum over the expert's rows.
template <class A, class B, class C>
MIXTAPE_DEVICE void grouped_weights(const GroupedGemmParams& p, const GroupedReads<A, B>& reads,
                                    Global<const std::uint32_t> offsets, Global<C> c,
                                    Global<std::uint64_t> errors, Shared<float> tile_a, Shared<float> tile_b,
                                    Shared<std::uint64_t> scratch) {
  const std::int64_t tiles_k = (p.k + kProductTile - 1) / kProductTile,
                     tiles_n = (p.n + kProductTile - 1) / kProductTile;
  const std::int64_t expert = block_x() / (tiles_k * tiles_n),
                     row = block_x() / tiles_k % tiles_n * kProductTile,
                     col = block_x() % tiles_k * kProductTile;
  const bool is_bad = find_group_tile(offsets, p.experts, p.rows, -1, kProductTile, errors, scratch).is_bad;
  const std::int64_t begin = offsets[expert];
  const std::int64_t count = is_bad ? 0 : static_cast<std::int64_t>(offsets[expert + 1]) - begin;
  if (count == 0 && p.accumulate != 0) return;
  float sums[8][8] = {};
  if (count > 0) {
    const ProductOperand<A> in{reads.a + (begin * p.n + row), p.n - row, 1, p.n};
    const ProductOperand<B> weights{reads.b + (begin * p.k + col), p.k - col, 1, p.k};
    add_tile_products(in, weights, count, tile_a, tile_b, sums);
  }
  const Global<C> out = c + ((expert * p.n + row) * p.k + col);
  store_tile_sums<C>(sums, out, out, p.n - row, p.k - col, p.k, p.accumulate != 0);
}

#define GROUPED(KIND, A, B, C)                                                                           \
  MIXTAPE_KERNEL(KIND##_##A##_##B##_##C, 256, GroupedGemmParams p, Global<const A> a, Global<const B> b, \
                 Global<const std::uint32_t> offsets, Global<C> c, Global<std::uint64_t> errors,         \
                 Global<const A> a2, Global<const B> b2) {                                               \
    await_earlier();                                                                                     \
    MIXTAPE_SHARED(float, tile_a, kProductShared);                                                       \
    MIXTAPE_SHARED(float, tile_b, kProductShared);                                                       \
    MIXTAPE_SHARED(std::uint64_t, scratch, kGroupScratch);                                               \
    KIND<A, B, C>(p, {a, b, a2, b2}, offsets, c, errors, tile_a, tile_b, scratch);                       \
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
GROUPED_TYPES(grouped_rows_pair)
GROUPED_TYPES(grouped_weights)

}  // namespace mixtape
