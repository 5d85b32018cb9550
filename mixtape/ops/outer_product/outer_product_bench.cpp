#include "mixtape/ops/outer_product/outer_product.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t batch, std::int64_t n, std::int64_t m) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {batch, n}), b = bench.random(dtype, {batch, m});
  const Buffer y = bench.output(dtype, {batch, n, m});
  bench.run([&](CommandEncoder& encoder) { outer_product_forward(encoder, a, b, y); }, y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t batch, std::int64_t n, std::int64_t m) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {batch, n}), b = bench.random(dtype, {batch, m});
  const Buffer dy = bench.random(dtype, {batch, n, m});
  const Buffer da = bench.output(dtype, {batch, n}), db = bench.output(dtype, {batch, m});
  bench.run(
      [&](CommandEncoder& encoder) {
        outer_product_backward_a(encoder, b, dy, da);
        outer_product_backward_b(encoder, a, dy, db);
      },
      2 * dy.bytes());
}

OP_BENCH(forward, f32_64x128x128, DType::f32, 64, 128, 128);
OP_BENCH(forward, bf16_8192x4096, DType::bf16, 1, 8192, 4096);
OP_BENCH(backward, f32_64x128x128, DType::f32, 64, 128, 128);
OP_BENCH(backward, bf16_8192x4096, DType::bf16, 1, 8192, 4096);

}  // namespace
}  // namespace mixtape
