#include "mixtape/ops/reduce/axes.h"
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

void over_axis(benchmark::State& state, DType dtype, const Shape& shape, std::int64_t axis) {
  const OpBench bench(state);
  Tape tape(bench.device());
  const Var x = tape.constant(bench.random(dtype, shape));
  bench.run([&](CommandEncoder&) { sum(x, axis); }, x.value().bytes());
}

void expand_column(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, 1}), y = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { expand_forward(encoder, x, y); }, y.bytes());
}

OP_BENCH(over_axis, f32_8192x2048_first, DType::f32, {8192, 2048}, 0);
OP_BENCH(over_axis, f32_64x256x1024_middle, DType::f32, {64, 256, 1024}, 1);
OP_BENCH(expand_column, f32_8192x2048, DType::f32, 8192, 2048);
OP_BENCH(rows_forward, f32_128x1024, DType::f32, 128, 1024);
OP_BENCH(rows_forward, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(rows_forward, f32_8192x2048, DType::f32, 8192, 2048);
OP_BENCH(rows_forward, bf16_128x1024, DType::bf16, 128, 1024);
OP_BENCH(rows_forward, bf16_512x1024, DType::bf16, 512, 1024);
OP_BENCH(rows_forward, bf16_8192x2048, DType::bf16, 8192, 2048);
OP_BENCH(rows_backward, f32_128x1024, DType::f32, 128, 1024);
OP_BENCH(rows_backward, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(rows_backward, f32_8192x2048, DType::f32, 8192, 2048);
OP_BENCH(rows_backward, bf16_128x1024, DType::bf16, 128, 1024);
OP_BENCH(rows_backward, bf16_512x1024, DType::bf16, 512, 1024);
OP_BENCH(rows_backward, bf16_8192x2048, DType::bf16, 8192, 2048);
OP_BENCH(whole_forward, f32_262144, DType::f32, 262144);
OP_BENCH(whole_forward, f32_16777216, DType::f32, 16777216);

}  // namespace
}  // namespace mixtape
