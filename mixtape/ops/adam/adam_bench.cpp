#include "mixtape/ops/adam/adam.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

std::vector<AdamTensor> tensors_of(const OpBench& bench, DType g, std::int64_t count, std::int64_t size) {
  std::vector<AdamTensor> tensors;
  for (std::int64_t i = 0; i < count; ++i) {
    tensors.push_back({bench.random(DType::f32, {size}), bench.random(g, {size}),
                       bench.output(DType::f32, {size}), bench.output(DType::f32, {size})});
  }
  return tensors;
}

// Reads p, g, m, v and writes p, m, v.
void step(benchmark::State& state, DType g, std::int64_t count, std::int64_t size) {
  const OpBench bench(state);
  const std::vector<AdamTensor> tensors = tensors_of(bench, g, count, size);
  const std::size_t bytes =
      static_cast<std::size_t>(count) * (6 * tensors[0].p.bytes() + tensors[0].g.bytes());
  bench.run([&](CommandEncoder& encoder) { adam_step(encoder, tensors, {}); }, bytes);
}

void squares(benchmark::State& state, DType dtype, std::int64_t size) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {size}), out = bench.output(DType::f32, {1});
  bench.run([&](CommandEncoder& encoder) { sum_of_squares(encoder, {x}, out); }, x.bytes());
}

void copy(benchmark::State& state, std::int64_t size) {  // what memory allows
  const OpBench bench(state);
  const Buffer x = bench.random(DType::f32, {size}), y = bench.output(DType::f32, {size});
  bench.run([&](CommandEncoder& encoder) { encoder.copy(x, y); }, 2 * x.bytes());
}

OP_BENCH(step, f32_200x2048, DType::f32, 200, 2048);
OP_BENCH(step, f32_50x1M, DType::f32, 50, 1000000);
OP_BENCH(step, f32_8x4M, DType::f32, 8, 4 << 20);
OP_BENCH(step, bf16_8x4M, DType::bf16, 8, 4 << 20);
OP_BENCH(squares, f32_32M, DType::f32, 32 << 20);
OP_BENCH(copy, f32_32M, 32 << 20);

}  // namespace
}  // namespace mixtape
