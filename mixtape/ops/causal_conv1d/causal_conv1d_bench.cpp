#include "mixtape/ops/causal_conv1d/causal_conv1d.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr std::int64_t kTaps = 4;

void forward(benchmark::State& state, DType dtype, std::int64_t length, std::int64_t channels) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {1, length, channels}),
               w = bench.random(DType::f32, {channels, kTaps});
  const Buffer y = bench.output(dtype, x.shape());
  bench.run(
      [&](CommandEncoder& encoder) { causal_conv1d_forward(encoder, x, w, {}, {}, ConvActivation::silu, y); },
      x.bytes() + y.bytes(), 2.0 * static_cast<double>(x.numel() * kTaps));
}

void backward(benchmark::State& state, DType dtype, std::int64_t length, std::int64_t channels) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {1, length, channels}),
               w = bench.random(DType::f32, {channels, kTaps});
  const Buffer dy = bench.random(dtype, x.shape()), dx = bench.output(dtype, x.shape());
  const Buffer dw = bench.output(DType::f32, w.shape());
  bench.run(
      [&](CommandEncoder& encoder) {
        causal_conv1d_backward(encoder, x, w, {}, {}, ConvActivation::silu, dy, {dx, Accumulate::no},
                               {dw, Accumulate::no}, {}, {});
      },
      3 * x.bytes(), 6.0 * static_cast<double>(x.numel() * kTaps));
}

OP_BENCH(forward, f32_512x8192, DType::f32, 512, 8192);
OP_BENCH(forward, f32_4096x8192, DType::f32, 4096, 8192);
OP_BENCH(forward, bf16_4096x8192, DType::bf16, 4096, 8192);
OP_BENCH(backward, f32_512x8192, DType::f32, 512, 8192);
OP_BENCH(backward, f32_4096x8192, DType::f32, 4096, 8192);
OP_BENCH(backward, bf16_4096x8192, DType::bf16, 4096, 8192);

}  // namespace
}  // namespace mixtape
