#include "mixtape/ops/block_scales/block_scales.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr BlockScaleRule kRule{8, {0, 63}};

// Of [rows, 4096] weights.
struct Scales {
  Scales(const OpBench& bench, std::int64_t rows)
      : d(bench.random(DType::f32, {rows, 16}, 0.01)),
        u(bench.random(DType::f32, {rows, 128}, 20.0)),
        y(bench.output(DType::f32, u.shape())) {}
  Buffer d, u, y;
};

void forward(benchmark::State& state, std::int64_t rows) {
  const OpBench bench(state);
  const Scales s(bench, rows);
  bench.run([&](CommandEncoder& encoder) { block_scales_forward(encoder, s.d, s.u, s.y, kRule); },
            s.d.bytes() + 2 * s.u.bytes());
}

void backward(benchmark::State& state, std::int64_t rows) {
  const OpBench bench(state);
  const Scales s(bench, rows);
  const Buffer dd = bench.output(DType::f32, s.d.shape()), du = bench.output(DType::f32, s.u.shape());
  bench.run(
      [&](CommandEncoder& encoder) {
        block_scales_backward(encoder, s.y, s.d, s.u, {dd, Accumulate::no}, {du, Accumulate::no}, kRule);
      },
      2 * s.d.bytes() + 3 * s.u.bytes());
}

OP_BENCH(forward, f32_q4_k_262144x4096, 262144);
OP_BENCH(backward, f32_q4_k_262144x4096, 262144);

}  // namespace
}  // namespace mixtape
