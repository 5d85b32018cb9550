#include "mixtape/ops/layer_norm/layer_norm.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}), w = bench.random(dtype, {cols});
  const Buffer y = bench.output(dtype, {rows, cols}), stats = bench.output(DType::f32, {rows, 2});
  bench.run([&](CommandEncoder& encoder) { layer_norm_forward(encoder, x, w, w, 1e-5f, y, stats); },
            x.bytes() + y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}), w = bench.random(dtype, {cols});
  const Buffer stats = bench.random(DType::f32, {rows, 2}), dy = bench.random(dtype, {rows, cols});
  const Buffer dx = bench.output(dtype, {rows, cols}), dw = bench.output(dtype, {cols}),
               db = bench.output(dtype, {cols});
  bench.run(
      [&](CommandEncoder& encoder) {
        layer_norm_backward(encoder, x, w, stats, dy, {dx, Accumulate::no}, {dw, Accumulate::no},
                            {db, Accumulate::no});
      },
      3 * x.bytes());
}

OP_BENCH(forward, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(forward, f32_8192x2048, DType::f32, 8192, 2048);
OP_BENCH(forward, bf16_8192x2048, DType::bf16, 8192, 2048);
OP_BENCH(backward, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(backward, f32_8192x2048, DType::f32, 8192, 2048);
OP_BENCH(backward, bf16_8192x2048, DType::bf16, 8192, 2048);

}  // namespace
}  // namespace mixtape
