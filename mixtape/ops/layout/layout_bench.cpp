#include "mixtape/ops/layout/layout.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void transpose(benchmark::State& state, DType dtype, const Shape& from, const Axes& axes, const Shape& to) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, from);
  const Buffer y = bench.output(dtype, to);
  bench.run([&](CommandEncoder& encoder) { permute_forward(encoder, x, axes, y); }, 2 * x.bytes());
}

void heads(benchmark::State& state, DType dtype, const Shape& from, const Axes& axes, const Shape& to) {
  transpose(state, dtype, from, axes, to);
}

void slice(benchmark::State& state, DType dtype, const Shape& from, const Shape& to) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, from);
  const Buffer y = bench.output(dtype, to);
  bench.run([&](CommandEncoder& encoder) { slice_forward(encoder, x, -1, 0, y); }, 2 * y.bytes());
}

OP_BENCH(transpose, f32_512x512, DType::f32, {512, 512}, {1, 0}, {512, 512});
OP_BENCH(transpose, f32_4096x4096, DType::f32, {4096, 4096}, {1, 0}, {4096, 4096});
OP_BENCH(transpose, bf16_4096x4096, DType::bf16, {4096, 4096}, {1, 0}, {4096, 4096});
OP_BENCH(heads, f32_4x1024x32x128, DType::f32, {4, 1024, 32, 128}, {0, 2, 1, 3}, {4, 32, 1024, 128});
OP_BENCH(heads, bf16_4x1024x32x128, DType::bf16, {4, 1024, 32, 128}, {0, 2, 1, 3}, {4, 32, 1024, 128});
OP_BENCH(slice, f32_8192x4096, DType::f32, {8192, 8192}, {8192, 4096});

}  // namespace
}  // namespace mixtape
