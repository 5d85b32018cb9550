// Matrix products where no library makes them.
#include "mixtape/backend/gpu/product_tile.h"

namespace mixtape {

// A block per tile of c, matrix after matrix.
template <class T, class C>
MIXTAPE_DEVICE void product(const ProductParams& p, Global<const T> a, Global<const T> b,
                            Global<const C> before, Global<C> c, Shared<float> tile_a, Shared<float> tile_b) {
  const std::int64_t tiles_m = (p.m + kProductTile - 1) / kProductTile,
                     tiles_n = (p.n + kProductTile - 1) / kProductTile;
  const std::int64_t matrix = block_x() / (tiles_m * tiles_n),
                     row = block_x() / tiles_n % tiles_m * kProductTile,
                     col = block_x() % tiles_n * kProductTile;
  const ProductOperand<T> left{a + (matrix * p.step_a + (p.trans_a != 0 ? row : row * p.row_a)), p.m - row,
                               p.trans_a != 0 ? 1 : p.row_a, p.trans_a != 0 ? p.row_a : 1};
  const ProductOperand<T> right{b + (matrix * p.step_b + (p.trans_b != 0 ? col * p.row_b : col)), p.n - col,
                                p.trans_b != 0 ? p.row_b : 1, p.trans_b != 0 ? 1 : p.row_b};
  float sums[8][8] = {};
  add_tile_products(left, right, p.k, tile_a, tile_b, sums);
  MIXTAPE_UNROLL
  for (int i = 0; i < 8; ++i) {
    MIXTAPE_UNROLL
    for (int j = 0; j < 8; ++j) sums[i][j] *= p.alpha;
  }
  const std::int64_t at = matrix * p.step_c + row * p.row_c + col;
  store_tile_sums<C>(sums, c + at, before + at, p.m - row, p.n - col, p.row_c, p.accumulate != 0);
}

#define PRODUCT(T, C)                                                                           \
  MIXTAPE_KERNEL(product_##T##_##C, 256, ProductParams p, Global<const T> a, Global<const T> b, \
                 Global<const C> before, Global<C> c) {                                         \
    await_earlier();                                                                            \
    MIXTAPE_SHARED(float, tile_a, kProductShared);                                              \
    MIXTAPE_SHARED(float, tile_b, kProductShared);                                              \
    product<T, C>(p, a, b, before, c, tile_a, tile_b);                                          \
  }
PRODUCT(f32, f32)
PRODUCT(bf16, bf16)
PRODUCT(bf16, f32)
PRODUCT(f16, f16)
PRODUCT(f16, f32)

}  // namespace mixtape
