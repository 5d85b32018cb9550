#include "mixtape/ops/clamped_swiglu/clamped_swiglu.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer gate = bench.random(dtype, {n});
  const Buffer up = bench.random(dtype, {n});
  const Buffer y = bench.output(dtype, {n});
  bench.run([&](CommandEncoder& encoder) { clamped_swiglu_forward(encoder, gate, up, {}, y); },
            3 * y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer gate = bench.random(dtype, {n});
  const Buffer up = bench.random(dtype, {n});
  const Buffer dy = bench.random(dtype, {n});
  const Buffer dgate = bench.output(dtype, {n});
  const Buffer dup = bench.output(dtype, {n});
  bench.run(
      [&](CommandEncoder& encoder) {
        clamped_swiglu_backward(encoder, gate, up, {}, dy, {dgate, Accumulate::no}, {dup, Accumulate::no});
      },
      5 * dy.bytes());
}

OP_BENCH(forward, f32_65536, DType::f32, 65536);
OP_BENCH(forward, f32_262144, DType::f32, 262144);
OP_BENCH(forward, f32_16777216, DType::f32, 16777216);
OP_BENCH(forward, bf16_16777216, DType::bf16, 16777216);
OP_BENCH(backward, f32_65536, DType::f32, 65536);
OP_BENCH(backward, f32_262144, DType::f32, 262144);
OP_BENCH(backward, f32_16777216, DType::f32, 16777216);
OP_BENCH(backward, bf16_16777216, DType::bf16, 16777216);

}  // namespace
}  // namespace mixtape
