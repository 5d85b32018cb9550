#include "mixtape/ops/moe_route/moe_route.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void route_forward(benchmark::State& state, std::int64_t tokens, std::int64_t experts, std::int64_t k) {
  const OpBench bench(state);
  const Buffer logits = bench.random(DType::f32, {tokens, experts});
  const Buffer weights = bench.output(DType::f32, {tokens, k}),
               indices = bench.output(DType::u32, {tokens, k});
  bench.run([&](CommandEncoder& encoder) { moe_route_forward(encoder, logits, weights, indices, true); },
            logits.bytes() + 2 * weights.bytes());
}

void route_backward(benchmark::State& state, std::int64_t tokens, std::int64_t experts, std::int64_t k) {
  const OpBench bench(state);
  const Buffer logits = bench.random(DType::f32, {tokens, experts});
  const Buffer dlogits = bench.output(DType::f32, {tokens, experts});
  const Buffer weights = bench.random(DType::f32, {tokens, k});
  const Buffer indices = upload(bench.device(), testing::random_indices({tokens, k}, 1, experts));
  bench.run(
      [&](CommandEncoder& encoder) {
        moe_route_backward(encoder, logits, weights, indices, weights, dlogits, false);
      },
      2 * logits.bytes() + 3 * weights.bytes());
}

void plan(benchmark::State& state, std::int64_t tokens, std::int64_t experts, std::int64_t k) {
  const OpBench bench(state);
  const Buffer indices = upload(bench.device(), testing::random_indices({tokens, k}, 1, experts));
  bench.run([&](CommandEncoder& encoder) { moe_plan(encoder, indices, experts); }, 4 * indices.bytes());
}

struct Rows {
  Rows(const OpBench& bench, DType dtype, std::int64_t tokens, std::int64_t k, std::int64_t cols)
      : x(bench.random(dtype, {tokens * k, cols})),
        y(bench.random(dtype, {tokens, cols})),
        weights(bench.random(DType::f32, {tokens, k})) {
    CommandEncoder encoder(bench.device());
    inverse =
        moe_plan(encoder, upload(bench.device(), testing::random_indices({tokens, k}, 1, 64)), 64).inverse;
  }
  Buffer x, y, weights, inverse;
};

void combine_forward(benchmark::State& state, DType dtype, std::int64_t tokens, std::int64_t k,
                     std::int64_t cols) {
  const OpBench bench(state);
  const Rows r(bench, dtype, tokens, k, cols);
  bench.run([&](CommandEncoder& encoder) { moe_combine_forward(encoder, r.x, r.weights, r.inverse, r.y); },
            r.x.bytes() + r.y.bytes());
}

void combine_backward(benchmark::State& state, DType dtype, std::int64_t tokens, std::int64_t k,
                      std::int64_t cols) {
  const OpBench bench(state);
  const Rows r(bench, dtype, tokens, k, cols);
  const Buffer dx = bench.output(dtype, r.x.shape()), dweights = bench.output(DType::f32, {tokens, k});
  bench.run(
      [&](CommandEncoder& encoder) {
        moe_combine_backward(encoder, r.x, r.weights, r.inverse, r.y, {dx, Accumulate::no},
                             {dweights, Accumulate::no});
      },
      2 * r.x.bytes() + r.y.bytes());
}

OP_BENCH(route_forward, f32_1024x128_k8, 1024, 128, 8);
OP_BENCH(route_forward, f32_131072x128_k8, 131072, 128, 8);
OP_BENCH(route_backward, f32_131072x128_k8, 131072, 128, 8);
OP_BENCH(plan, f32_131072x128_k8, 131072, 128, 8);
OP_BENCH(combine_forward, f32_128x8x1024, DType::f32, 128, 8, 1024);
OP_BENCH(combine_forward, bf16_8192x8x2048, DType::bf16, 8192, 8, 2048);
OP_BENCH(combine_backward, bf16_8192x8x2048, DType::bf16, 8192, 8, 2048);

}  // namespace
}  // namespace mixtape
