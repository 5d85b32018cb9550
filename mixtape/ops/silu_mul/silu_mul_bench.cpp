#include "mixtape/ops/silu_mul/silu_mul.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer gate = bench.random(dtype, {n});
  const Buffer up = bench.random(dtype, {n});
  const Buffer y = bench.output(dtype, {n});
  bench.run([&](CommandEncoder& encoder) { silu_mul_forward(encoder, gate, up, y); }, 3 * y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer gate = bench.random(dtype, {n});
  const Buffer up = bench.random(dtype, {n});
  const Buffer dy = bench.random(dtype, {n});
  const Buffer dgate = bench.output(dtype, {n});
  const Buffer dup = bench.output(dtype, {n});
  bench.run([&](CommandEncoder& encoder) { silu_mul_backward(encoder, gate, up, dy, dgate, dup); },
            5 * dy.bytes());
}

BENCHMARK_CAPTURE(forward, f32_cache, DType::f32, 1 << 18);
BENCHMARK_CAPTURE(forward, f32, DType::f32, 1 << 25);
BENCHMARK_CAPTURE(forward, bf16, DType::bf16, 1 << 25);
BENCHMARK_CAPTURE(backward, f32_cache, DType::f32, 1 << 18);
BENCHMARK_CAPTURE(backward, f32, DType::f32, 1 << 25);
BENCHMARK_CAPTURE(backward, bf16, DType::bf16, 1 << 25);

}  // namespace
}  // namespace mixtape
