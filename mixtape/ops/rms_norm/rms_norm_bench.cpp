#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer w = bench.random(dtype, {cols});
  const Buffer y = bench.output(dtype, {rows, cols});
  const Buffer rstd = bench.output(DType::f32, {rows});
  bench.run([&](CommandEncoder& encoder) { rms_norm_forward(encoder, x, w, 1e-6f, y, rstd); },
            x.bytes() + y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer w = bench.random(dtype, {cols});
  const Buffer rstd = bench.random(DType::f32, {rows});
  const Buffer dy = bench.random(dtype, {rows, cols});
  const Buffer dx = bench.output(dtype, {rows, cols});
  const Buffer dw = bench.output(dtype, {cols});
  bench.run(
      [&](CommandEncoder& encoder) {
        rms_norm_backward(encoder, x, w, rstd, dy, {dx, Accumulate::no}, {dw, Accumulate::no});
      },
      3 * x.bytes());
}

BENCHMARK_CAPTURE(forward, f32_512x1024, DType::f32, 512, 1024);
BENCHMARK_CAPTURE(forward, f32_16384x2048, DType::f32, 16384, 2048);
BENCHMARK_CAPTURE(forward, bf16_16384x2048, DType::bf16, 16384, 2048);
BENCHMARK_CAPTURE(backward, f32_512x1024, DType::f32, 512, 1024);
BENCHMARK_CAPTURE(backward, f32_16384x2048, DType::f32, 16384, 2048);
BENCHMARK_CAPTURE(backward, bf16_16384x2048, DType::bf16, 16384, 2048);

}  // namespace
}  // namespace mixtape
