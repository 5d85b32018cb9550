#include "mixtape/ops/gated_rms_norm/gated_rms_norm.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}), z = bench.random(dtype, {rows, cols});
  const Buffer w = bench.random(dtype, {cols});
  const Buffer y = bench.output(dtype, {rows, cols});
  const Buffer rstd = bench.output(DType::f32, {rows});
  bench.run([&](CommandEncoder& encoder) { gated_rms_norm_forward(encoder, x, z, w, 1e-6f, y, rstd); },
            3 * x.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}), z = bench.random(dtype, {rows, cols});
  const Buffer w = bench.random(dtype, {cols});
  const Buffer rstd = bench.random(DType::f32, {rows});
  const Buffer dy = bench.random(dtype, {rows, cols});
  const Buffer dx = bench.output(dtype, {rows, cols}), dz = bench.output(dtype, {rows, cols});
  const Buffer dw = bench.output(dtype, {cols});
  bench.run(
      [&](CommandEncoder& encoder) {
        gated_rms_norm_backward(encoder, x, z, w, rstd, dy, {dx, Accumulate::no}, {dz, Accumulate::no},
                                {dw, Accumulate::no});
      },
      5 * x.bytes());
}

BENCHMARK_CAPTURE(forward, f32_8192x128, DType::f32, 8192, 128);
BENCHMARK_CAPTURE(forward, bf16_131072x128, DType::bf16, 131072, 128);
BENCHMARK_CAPTURE(backward, f32_8192x128, DType::f32, 8192, 128);
BENCHMARK_CAPTURE(backward, bf16_131072x128, DType::bf16, 131072, 128);

}  // namespace
}  // namespace mixtape
