#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr std::int64_t kRows = 4096, kCols = 4096;

struct Weight {
  Weight(const OpBench& bench, DType dtype, AffineParams p)
      : w(bench.random(dtype, {kRows, kCols}, 0.02)),
        codes(bench.output(DType::u32, packed_shape(w.shape(), p))),
        scales(bench.output(dtype, scales_shape(w.shape(), p))),
        biases(bench.output(dtype, scales_shape(w.shape(), p))) {}
  std::size_t bytes() const { return w.bytes() + codes.bytes() + 2 * scales.bytes(); }
  Buffer w, codes, scales, biases;
};

void quantize(benchmark::State& state, DType dtype, int bits) {
  const OpBench bench(state);
  const AffineParams p{bits, 64};
  const Weight q(bench, dtype, p);
  bench.run(
      [&](CommandEncoder& encoder) { quantize_affine_forward(encoder, q.w, q.codes, q.scales, q.biases, p); },
      q.bytes());
}

void forward(benchmark::State& state, DType dtype, int bits) {
  const OpBench bench(state);
  const AffineParams p{bits, 64};
  const Weight q(bench, dtype, p);
  bench.run(
      [&](CommandEncoder& encoder) {
        dequantize_affine_forward(encoder, q.codes, q.scales, q.biases, q.w, p);
      },
      q.bytes());
}

void backward(benchmark::State& state, DType dtype, int bits) {
  const OpBench bench(state);
  const AffineParams p{bits, 64};
  const Weight q(bench, dtype, p);
  bench.run(
      [&](CommandEncoder& encoder) {
        dequantize_affine_backward(encoder, q.w, q.codes, {q.scales, Accumulate::no},
                                   {q.biases, Accumulate::no}, p);
      },
      q.bytes());
}

OP_BENCH(quantize, f32_4bit_4096x4096, DType::f32, 4);
OP_BENCH(quantize, bf16_4bit_4096x4096, DType::bf16, 4);
OP_BENCH(forward, f32_2bit_4096x4096, DType::f32, 2);
OP_BENCH(forward, f32_3bit_4096x4096, DType::f32, 3);
OP_BENCH(forward, f32_4bit_4096x4096, DType::f32, 4);
OP_BENCH(forward, f32_5bit_4096x4096, DType::f32, 5);
OP_BENCH(forward, f32_6bit_4096x4096, DType::f32, 6);
OP_BENCH(forward, f32_8bit_4096x4096, DType::f32, 8);
OP_BENCH(forward, bf16_2bit_4096x4096, DType::bf16, 2);
OP_BENCH(forward, bf16_3bit_4096x4096, DType::bf16, 3);
OP_BENCH(forward, bf16_4bit_4096x4096, DType::bf16, 4);
OP_BENCH(forward, bf16_8bit_4096x4096, DType::bf16, 8);
OP_BENCH(backward, f32_4bit_4096x4096, DType::f32, 4);
OP_BENCH(backward, bf16_4bit_4096x4096, DType::bf16, 4);

}  // namespace
}  // namespace mixtape
