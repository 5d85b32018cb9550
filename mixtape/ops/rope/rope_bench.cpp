#include <numeric>

#include "mixtape/ops/rope/rope.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, const Shape& shape, RopePairs pairs) {
  const OpBench bench(state);
  std::vector<std::uint32_t> places(static_cast<std::size_t>(shape[1]));
  std::iota(places.begin(), places.end(), 0u);
  std::vector<float> frequencies(static_cast<std::size_t>(shape[3] / 2));
  for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = 1.0f / static_cast<float>(1 + i * i);
  const Buffer positions = Buffer::from(bench.device(), {shape[1]}, places);
  const Buffer inv_freq = Buffer::from(bench.device(), {shape[3] / 2}, frequencies);
  const Buffer x = bench.random(dtype, shape);
  const Buffer y = bench.output(dtype, shape);
  bench.run([&](CommandEncoder& encoder) { rope_forward(encoder, x, positions, inv_freq, {pairs}, y); },
            2 * x.bytes());
}

OP_BENCH(forward, f32_1x128x8x128, DType::f32, {1, 128, 8, 128}, RopePairs::half_split);
OP_BENCH(forward, f32_4x2048x32x128, DType::f32, {4, 2048, 32, 128}, RopePairs::half_split);
OP_BENCH(forward, bf16_4x2048x32x128, DType::bf16, {4, 2048, 32, 128}, RopePairs::half_split);
OP_BENCH(forward, f32_4x2048x32x128_interleaved, DType::f32, {4, 2048, 32, 128}, RopePairs::interleaved);

}  // namespace
}  // namespace mixtape
