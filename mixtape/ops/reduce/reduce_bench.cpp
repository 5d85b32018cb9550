#include "mixtape/ops/reduce/reduce.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void rows_forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer y = bench.output(dtype, {rows});
  bench.run([&](CommandEncoder& encoder) { row_reduce_forward(encoder, Reduction::sum, x, y); }, x.bytes());
}

void rows_backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer dy = bench.random(dtype, {rows});
  const Buffer dx = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { row_reduce_backward(encoder, Reduction::sum, dy, dx); },
            dx.bytes());
}

void whole_forward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {n});
  const Buffer y = bench.output(DType::f32, {1});
  bench.run([&](CommandEncoder& encoder) { reduce_forward(encoder, Reduction::mean, x, y); }, x.bytes());
}

BENCHMARK_CAPTURE(rows_forward, f32_2048x128, DType::f32, 2048, 128);
BENCHMARK_CAPTURE(rows_forward, f32_8192x4096, DType::f32, 8192, 4096);
BENCHMARK_CAPTURE(rows_forward, bf16_8192x4096, DType::bf16, 8192, 4096);
BENCHMARK_CAPTURE(rows_backward, f32_8192x4096, DType::f32, 8192, 4096);
BENCHMARK_CAPTURE(whole_forward, f32_cache, DType::f32, 1 << 18);
BENCHMARK_CAPTURE(whole_forward, f32, DType::f32, 1 << 25);

}  // namespace
}  // namespace mixtape
