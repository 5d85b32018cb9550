#include "mixtape/ops/log_softmax/log_softmax.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer y = bench.output(dtype, {rows, cols});
  const Buffer stats = bench.output(DType::f32, {rows, 2});
  bench.run([&](CommandEncoder& encoder) { log_softmax_forward(encoder, x, y, stats); }, 2 * x.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer stats = bench.random(DType::f32, {rows, 2});
  const Buffer dy = bench.random(dtype, {rows, cols});
  const Buffer dx = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { log_softmax_backward(encoder, x, stats, dy, dx); }, 3 * x.bytes());
}

OP_BENCH(forward, f32_512x128, DType::f32, 512, 128);
OP_BENCH(forward, f32_8192x128, DType::f32, 8192, 128);
OP_BENCH(forward, f32_262144x128, DType::f32, 262144, 128);
OP_BENCH(forward, f32_8192x4096, DType::f32, 8192, 4096);
OP_BENCH(forward, f32_512x151936, DType::f32, 512, 151936);
OP_BENCH(forward, bf16_512x128, DType::bf16, 512, 128);
OP_BENCH(forward, bf16_8192x128, DType::bf16, 8192, 128);
OP_BENCH(forward, bf16_262144x128, DType::bf16, 262144, 128);
OP_BENCH(forward, bf16_8192x4096, DType::bf16, 8192, 4096);
OP_BENCH(forward, bf16_512x151936, DType::bf16, 512, 151936);
OP_BENCH(backward, f32_512x128, DType::f32, 512, 128);
OP_BENCH(backward, f32_8192x128, DType::f32, 8192, 128);
OP_BENCH(backward, f32_262144x128, DType::f32, 262144, 128);
OP_BENCH(backward, f32_8192x4096, DType::f32, 8192, 4096);
OP_BENCH(backward, f32_512x151936, DType::f32, 512, 151936);
OP_BENCH(backward, bf16_512x128, DType::bf16, 512, 128);
OP_BENCH(backward, bf16_8192x128, DType::bf16, 8192, 128);
OP_BENCH(backward, bf16_262144x128, DType::bf16, 262144, 128);
OP_BENCH(backward, bf16_8192x4096, DType::bf16, 8192, 4096);
OP_BENCH(backward, bf16_512x151936, DType::bf16, 512, 151936);

}  // namespace
}  // namespace mixtape
