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

OP_BENCH(forward, f32_128x1024, DType::f32, 128, 1024);
OP_BENCH(forward, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(forward, f32_8192x2048, DType::f32, 8192, 2048);
OP_BENCH(forward, bf16_128x1024, DType::bf16, 128, 1024);
OP_BENCH(forward, bf16_512x1024, DType::bf16, 512, 1024);
OP_BENCH(forward, bf16_8192x2048, DType::bf16, 8192, 2048);
OP_BENCH(backward, f32_128x1024, DType::f32, 128, 1024);
OP_BENCH(backward, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(backward, f32_8192x2048, DType::f32, 8192, 2048);
OP_BENCH(backward, bf16_128x1024, DType::bf16, 128, 1024);
OP_BENCH(backward, bf16_512x1024, DType::bf16, 512, 1024);
OP_BENCH(backward, bf16_8192x2048, DType::bf16, 8192, 2048);

}  // namespace
}  // namespace mixtape
