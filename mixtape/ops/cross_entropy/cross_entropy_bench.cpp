#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}, 3.0);
  const Buffer targets = testing::upload(bench.device(), testing::random_indices({rows}, 2, cols));
  const Buffer loss = bench.output(DType::f32, {rows});
  const Buffer lse = bench.output(DType::f32, {rows, 2});
  bench.run([&](CommandEncoder& encoder) { cross_entropy_forward(encoder, x, targets, loss, lse); },
            x.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}, 3.0);
  const Buffer targets = testing::upload(bench.device(), testing::random_indices({rows}, 2, cols));
  const Buffer lse = bench.random(DType::f32, {rows, 2});
  const Buffer dloss = bench.random(DType::f32, {rows});
  const Buffer dx = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { cross_entropy_backward(encoder, x, targets, lse, dloss, dx); },
            x.bytes() + dx.bytes());
}

void both(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}, 3.0);
  const Buffer targets = testing::upload(bench.device(), testing::random_indices({rows}, 2, cols));
  const Buffer dloss = bench.random(DType::f32, {rows});
  const Buffer loss = bench.output(DType::f32, {rows});
  const Buffer dx = bench.output(dtype, {rows, cols});
  bench.run(
      [&](CommandEncoder& encoder) { cross_entropy_forward_backward(encoder, x, targets, dloss, loss, dx); },
      x.bytes() + dx.bytes());
}

OP_BENCH(forward, f32_2048x512, DType::f32, 2048, 512);
OP_BENCH(forward, f32_512x49152, DType::f32, 512, 49152);
OP_BENCH(forward, f32_512x151936, DType::f32, 512, 151936);
OP_BENCH(forward, bf16_512x49152, DType::bf16, 512, 49152);
OP_BENCH(backward, f32_2048x512, DType::f32, 2048, 512);
OP_BENCH(backward, f32_512x49152, DType::f32, 512, 49152);
OP_BENCH(backward, f32_512x151936, DType::f32, 512, 151936);
OP_BENCH(backward, bf16_512x49152, DType::bf16, 512, 49152);
OP_BENCH(both, f32_2048x512, DType::f32, 2048, 512);
OP_BENCH(both, f32_512x151936, DType::f32, 512, 151936);
OP_BENCH(both, bf16_512x151936, DType::bf16, 512, 151936);

}  // namespace
}  // namespace mixtape
