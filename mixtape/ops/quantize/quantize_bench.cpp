#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr std::int64_t kRows = 4096, kCols = 4096;

// A weight, and memory for its codes.
struct Weight {
  Weight(const OpBench& bench, DType dtype, int bits)
      : w(bench.random(dtype, {kRows, kCols}, 0.02)),
        q(alloc_quantized(bench.device(), w.shape(), {bits, 64}, dtype)) {}
  std::size_t bytes() const { return w.bytes() + q.codes.bytes() + 2 * q.scales.bytes(); }
  Buffer w;
  QuantizedWeight q;
};

void quantize(benchmark::State& state, DType dtype, int bits) {
  const OpBench bench(state);
  const Weight weight(bench, dtype, bits);
  bench.run([&](CommandEncoder& encoder) { quantize_affine_forward(encoder, weight.w, weight.q); },
            weight.bytes());
}

void forward(benchmark::State& state, DType dtype, int bits) {
  const OpBench bench(state);
  const Weight weight(bench, dtype, bits);
  bench.run([&](CommandEncoder& encoder) { dequantize_affine_forward(encoder, weight.q, weight.w); },
            weight.bytes());
}

void backward(benchmark::State& state, DType dtype, int bits) {
  const OpBench bench(state);
  const Weight weight(bench, dtype, bits);
  const Buffer dscales = bench.output(dtype, weight.q.scales.shape()),
               dbiases = bench.output(dtype, weight.q.scales.shape());
  bench.run(
      [&](CommandEncoder& encoder) {
        dequantize_affine_backward(encoder, weight.q, weight.w, {dscales, Accumulate::no},
                                   {dbiases, Accumulate::no});
      },
      weight.bytes());
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
