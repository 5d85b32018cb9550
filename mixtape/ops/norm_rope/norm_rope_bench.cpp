#include <numeric>

#include "mixtape/ops/norm_rope/norm_rope.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

RopeTurns turns_of(const Device& device, const Shape& shape) {
  std::vector<std::uint32_t> places(static_cast<std::size_t>(shape[1]));
  std::iota(places.begin(), places.end(), 0u);
  std::vector<float> frequencies(static_cast<std::size_t>(shape[3] / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = 1.0f / static_cast<float>(1 + i * i);
  return {Buffer::from(device, {shape[1]}, places), Buffer::from(device, {shape[3] / 2}, frequencies), {}};
}

void forward(benchmark::State& state, DType dtype, const Shape& shape) {
  const OpBench bench(state);
  const RopeTurns turns = turns_of(bench.device(), shape);
  const Buffer x = bench.random(dtype, shape), w = bench.random(dtype, {shape.cols()});
  const Buffer y = bench.output(dtype, shape), rstd = bench.output(DType::f32, {shape.rows()});
  bench.run([&](CommandEncoder& encoder) { norm_rope_forward(encoder, x, w, 1e-6f, turns, y, rstd); },
            2 * x.bytes());
}

void backward(benchmark::State& state, DType dtype, const Shape& shape) {
  const OpBench bench(state);
  const RopeTurns turns = turns_of(bench.device(), shape);
  const Buffer x = bench.random(dtype, shape), w = bench.random(dtype, {shape.cols()});
  const Buffer rstd = bench.random(DType::f32, {shape.rows()}), dy = bench.random(dtype, shape);
  const Buffer dx = bench.output(dtype, shape);
  bench.run(
      [&](CommandEncoder& encoder) {
        norm_rope_backward(encoder, x, w, rstd, turns, dy, {dx, Accumulate::no}, {});
      },
      3 * x.bytes());
}

OP_BENCH(forward, f32_4x512x16x128, DType::f32, {4, 512, 16, 128});
OP_BENCH(forward, bf16_4x512x16x128, DType::bf16, {4, 512, 16, 128});
OP_BENCH(forward, bf16_16x1024x16x128, DType::bf16, {16, 1024, 16, 128});
OP_BENCH(backward, f32_4x512x16x128, DType::f32, {4, 512, 16, 128});
OP_BENCH(backward, bf16_4x512x16x128, DType::bf16, {4, 512, 16, 128});
OP_BENCH(backward, bf16_16x1024x16x128, DType::bf16, {16, 1024, 16, 128});

}  // namespace
}  // namespace mixtape
