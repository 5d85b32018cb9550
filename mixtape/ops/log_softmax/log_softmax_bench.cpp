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

BENCHMARK_CAPTURE(forward, f32_2048x128, DType::f32, 2048, 128);
BENCHMARK_CAPTURE(forward, f32_256x151936, DType::f32, 256, 151936);
BENCHMARK_CAPTURE(forward, bf16_256x151936, DType::bf16, 256, 151936);
BENCHMARK_CAPTURE(backward, f32_2048x128, DType::f32, 2048, 128);
BENCHMARK_CAPTURE(backward, f32_256x151936, DType::f32, 256, 151936);
BENCHMARK_CAPTURE(backward, bf16_256x151936, DType::bf16, 256, 151936);

}  // namespace
}  // namespace mixtape
