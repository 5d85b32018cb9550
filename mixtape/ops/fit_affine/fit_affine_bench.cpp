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
  const QuantizedWeight q = alloc_quantized(bench.device(), w.shape(), p, dtype);
  // 123 passes over the weights, of 20 operations each.
  bench.run([&](CommandEncoder& encoder) { fit_affine_forward(encoder, w, importance, q); },
            w.bytes() + q.codes.bytes() + 2 * q.scales.bytes(),
            123.0 * 20.0 * static_cast<double>(w.numel()));
}

OP_BENCH(forward, bf16_2bit_1536x576, DType::bf16, 2, 1536, 576);
OP_BENCH(forward, bf16_4bit_1536x576, DType::bf16, 4, 1536, 576);
OP_BENCH(forward, f32_4bit_1536x576, DType::f32, 4, 1536, 576);
OP_BENCH(forward, bf16_8bit_1536x576, DType::bf16, 8, 1536, 576);
OP_BENCH(forward, bf16_4bit_4096x4096, DType::bf16, 4, 4096, 4096);

}  // namespace
}  // namespace mixtape
