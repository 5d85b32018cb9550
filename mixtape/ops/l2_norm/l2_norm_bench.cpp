#include "mixtape/ops/l2_norm/l2_norm.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer y = bench.output(dtype, {rows, cols});
  const Buffer q = bench.output(DType::f32, {rows});
  bench.run([&](CommandEncoder& encoder) { l2_norm_forward(encoder, x, 1e-6f, y, q); },
            x.bytes() + y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer q = bench.random(DType::f32, {rows});
  const Buffer dy = bench.random(dtype, {rows, cols});
  const Buffer dx = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { l2_norm_backward(encoder, x, q, dy, dx); }, 3 * x.bytes());
}

BENCHMARK_CAPTURE(forward, f32_8192x128, DType::f32, 8192, 128);
BENCHMARK_CAPTURE(forward, f32_16384x2048, DType::f32, 16384, 2048);
BENCHMARK_CAPTURE(forward, bf16_16384x2048, DType::bf16, 16384, 2048);
BENCHMARK_CAPTURE(backward, f32_8192x128, DType::f32, 8192, 128);
BENCHMARK_CAPTURE(backward, f32_16384x2048, DType::f32, 16384, 2048);
BENCHMARK_CAPTURE(backward, bf16_16384x2048, DType::bf16, 16384, 2048);

}  // namespace
}  // namespace mixtape
