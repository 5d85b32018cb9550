#include "mixtape/ops/softmax/softmax.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer y = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { softmax_forward(encoder, x, y); }, x.bytes() + y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer y = bench.random(dtype, {rows, cols});
  const Buffer dy = bench.random(dtype, {rows, cols});
  const Buffer dx = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { softmax_backward(encoder, y, dy, dx); }, 3 * y.bytes());
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
