#include "mixtape/ops/top_k/top_k.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t k) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer values = bench.output(dtype, {rows, k}), indices = bench.output(DType::u32, {rows, k});
  bench.run([&](CommandEncoder& encoder) { top_k_forward(encoder, x, values, indices); },
            x.bytes() + values.bytes() + indices.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t k) {
  const OpBench bench(state);
  const Buffer dvalues = bench.random(dtype, {rows, k}), dx = bench.output(dtype, {rows, cols});
  const Buffer indices = upload(bench.device(), testing::random_indices({rows, k}, 1, cols));
  bench.run([&](CommandEncoder& encoder) { top_k_backward(encoder, indices, dvalues, dx); },
            dx.bytes() + dvalues.bytes() + indices.bytes());
}

OP_BENCH(forward, f32_1024x128_k8, DType::f32, 1024, 128, 8);
OP_BENCH(forward, f32_131072x128_k8, DType::f32, 131072, 128, 8);
OP_BENCH(forward, f32_8192x2048_k1, DType::f32, 8192, 2048, 1);  // max over a row
OP_BENCH(forward, f32_2048x49152_k1024, DType::f32, 2048, 49152, 1024);
OP_BENCH(forward, bf16_2048x49152_k1024, DType::bf16, 2048, 49152, 1024);
OP_BENCH(backward, f32_1024x128_k8, DType::f32, 1024, 128, 8);
OP_BENCH(backward, f32_131072x128_k8, DType::f32, 131072, 128, 8);

}  // namespace
}  // namespace mixtape
