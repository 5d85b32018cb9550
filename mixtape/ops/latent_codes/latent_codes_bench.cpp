#include "mixtape/ops/latent_codes/latent_codes.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr AffineParams kFormat{4, 64};

// 32 matrices of a small model.
struct Weight {
  Weight(const OpBench& bench, DType dtype)
      : u(bench.random(DType::f32, {32 * 1536, 576}, 8.0)),
        w(bench.output(dtype, u.shape())),
        scales(bench.random(DType::f32, scales_shape(u.shape(), kFormat), 0.02)),
        biases(bench.output(DType::f32, scales.shape())) {}
  Buffer u, w, scales, biases;
};

void forward(benchmark::State& state, DType dtype) {
  const OpBench bench(state);
  const Weight q(bench, dtype);
  bench.run(
      [&](CommandEncoder& encoder) { latent_codes_forward(encoder, q.u, q.scales, q.biases, q.w, kFormat); },
      q.u.bytes() + q.w.bytes() + 2 * q.scales.bytes());
}

void backward(benchmark::State& state, DType dtype) {
  const OpBench bench(state);
  const Weight q(bench, dtype);
  const Buffer du = bench.output(DType::f32, q.u.shape());
  const Buffer dscales = bench.output(DType::f32, q.scales.shape());
  bench.run(
      [&](CommandEncoder& encoder) {
        latent_codes_backward(encoder, q.w, q.u, q.scales, {du, Accumulate::no}, {dscales, Accumulate::no},
                              {q.biases, Accumulate::no}, kFormat);
      },
      q.w.bytes() + 2 * q.u.bytes() + 3 * q.scales.bytes());
}

void pack(benchmark::State& state, DType dtype) {
  const OpBench bench(state);
  const Weight q(bench, dtype);
  const Buffer codes = bench.output(DType::u32, packed_shape(q.u.shape(), kFormat));
  bench.run([&](CommandEncoder& encoder) { pack_codes_forward(encoder, q.u, codes, kFormat); },
            q.u.bytes() + codes.bytes());
}

OP_BENCH(forward, f32_4bit_49152x576, DType::f32);
OP_BENCH(forward, bf16_4bit_49152x576, DType::bf16);
OP_BENCH(forward, f16_4bit_49152x576, DType::f16);
OP_BENCH(backward, f32_4bit_49152x576, DType::f32);
OP_BENCH(backward, bf16_4bit_49152x576, DType::bf16);
OP_BENCH(pack, f32_4bit_49152x576, DType::f32);

}  // namespace
}  // namespace mixtape
