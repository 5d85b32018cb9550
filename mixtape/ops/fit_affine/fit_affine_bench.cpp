#include "mixtape/ops/fit_affine/fit_affine.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, DType dtype, int bits, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const AffineParams p{bits, 64};
  const Buffer w = bench.random(DType::f32, {rows, cols}, 0.02);
  const Buffer importance =
      Buffer::from(bench.device(), {cols}, std::vector<float>(static_cast<std::size_t>(cols), 1.0f));
  const Buffer codes = bench.output(DType::u32, packed_shape(w.shape(), p));
  const Buffer scales = bench.output(dtype, scales_shape(w.shape(), p));
  const Buffer biases = bench.output(dtype, scales_shape(w.shape(), p));
  // 123 passes over the weights, of 20 operations each.
  bench.run(
      [&](CommandEncoder& encoder) { fit_affine_forward(encoder, w, importance, codes, scales, biases, p); },
      w.bytes() + codes.bytes() + 2 * scales.bytes(), 123.0 * 20.0 * static_cast<double>(w.numel()));
}

OP_BENCH(forward, bf16_2bit_1536x576, DType::bf16, 2, 1536, 576);
OP_BENCH(forward, bf16_4bit_1536x576, DType::bf16, 4, 1536, 576);
OP_BENCH(forward, f32_4bit_1536x576, DType::f32, 4, 1536, 576);
OP_BENCH(forward, bf16_8bit_1536x576, DType::bf16, 8, 1536, 576);
OP_BENCH(forward, bf16_4bit_4096x4096, DType::bf16, 4, 4096, 4096);

}  // namespace
}  // namespace mixtape
