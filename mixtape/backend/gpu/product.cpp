#include "mixtape/backend/gpu/product.h"

#include "mixtape/backend/gpu/product_params.h"

namespace mixtape::gpu {

void own_product(Queue& queue, const Gemm& gemm) {
  const Gemm g = with_strides(gemm);
  if (g.m == 0 || g.n == 0) return;
  const ProductParams p{g.m,      g.n,      g.k,      g.row_a,   g.row_b,   g.row_c,
                        g.step_a, g.step_b, g.step_c, g.trans_a, g.trans_b, g.accumulate || g.addend.memory,
                        g.alpha};
  const std::int64_t blocks = ceil_div(g.m, kProductTile) * ceil_div(g.n, kProductTile) * g.batch;
  queue.launch({str("product_", g.in, "_", g.out),
                grid_of(blocks),
                kBlock256,
                params_bytes(p),
                {g.a, g.b, g.addend.memory ? g.addend : g.c, g.c}});
}

}  // namespace mixtape::gpu
