#include "mixtape/ops/sampling/sampling.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void argmax(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer indices = bench.output(DType::u32, {rows});
  bench.run([&](CommandEncoder& encoder) { argmax_forward(encoder, x, indices); }, x.bytes());
}

void sample(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols, double top_p) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols}, 4.0);
  const Buffer indices = bench.output(DType::u32, {rows});
  bench.run(
      [&](CommandEncoder& encoder) {
        sample_forward(encoder, x, {0.8, top_p, 1, 1}, indices);
      },
      x.bytes());
}

OP_BENCH(argmax, f32_32x151936, DType::f32, 32, 151936);
OP_BENCH(argmax, bf16_8192x1024, DType::bf16, 8192, 1024);
OP_BENCH(sample, f32_32x151936, DType::f32, 32, 151936, 1.0);
OP_BENCH(sample, f32_32x151936_top_p, DType::f32, 32, 151936, 0.95);

}  // namespace
}  // namespace mixtape
