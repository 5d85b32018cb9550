#include "mixtape/ops/gated_delta_rule/gated_delta_rule.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr std::int64_t kDim = 128;

struct Case {
  DeltaRuleInputs in;
  Buffer y, final_state, states;
  std::size_t bytes;
  double flops;  // of the recurrence: three products with the state a position

  Case(const OpBench& bench, DType dtype, std::int64_t length, std::int64_t heads) {
    const Shape keys{1, length, heads, kDim}, gates{1, length, heads};
    const double unit = 1.0 / 11.3;  // keys of length 1
    in = {bench.random(dtype, keys, unit), bench.random(dtype, keys, unit), bench.random(dtype, keys),
          bench.random(DType::f32, gates, 0.0), bench.random(DType::f32, gates, 0.1)};
    y = bench.output(dtype, keys);
    final_state = bench.output(DType::f32, {1, heads, kDim, kDim});
    states = bench.output(DType::f32, gated_delta_rule_states(keys, keys));
    bytes = 4 * y.bytes() + states.bytes();
    flops = 6.0 * static_cast<double>(length * heads * kDim * kDim);
  }
};

void forward(benchmark::State& state, DType dtype, std::int64_t length, std::int64_t heads) {
  const OpBench bench(state);
  const Case c(bench, dtype, length, heads);
  bench.run(
      [&](CommandEncoder& encoder) { gated_delta_rule_forward(encoder, c.in, c.y, c.final_state, c.states); },
      c.bytes, c.flops);
}

void backward(benchmark::State& state, DType dtype, std::int64_t length, std::int64_t heads) {
  const OpBench bench(state);
  const Case c(bench, dtype, length, heads);
  const Buffer dy = bench.random(dtype, c.y.shape());
  DeltaRuleTargets out{};
  out.q.buffer = bench.output(dtype, c.y.shape());
  out.k.buffer = bench.output(dtype, c.y.shape());
  out.v.buffer = bench.output(dtype, c.y.shape());
  out.g.buffer = bench.output(DType::f32, c.in.g.shape());
  out.beta.buffer = bench.output(DType::f32, c.in.g.shape());
  bench.run(
      [&](CommandEncoder& encoder) { gated_delta_rule_backward(encoder, c.in, c.states, dy, Buffer(), out); },
      2 * c.bytes, 2.5 * c.flops);
}

OP_BENCH(forward, f32_1x16, DType::f32, 1, 16);
OP_BENCH(forward, f32_1024x16, DType::f32, 1024, 16);
OP_BENCH(forward, bf16_1024x16, DType::bf16, 1024, 16);
OP_BENCH(backward, f32_1024x16, DType::f32, 1024, 16);
OP_BENCH(backward, bf16_1024x16, DType::bf16, 1024, 16);

}  // namespace
}  // namespace mixtape
