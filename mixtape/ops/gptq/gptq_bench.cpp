#include "mixtape/ops/gptq/gptq.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

// w [n, k] of 4 bits in groups of 64.
void forward(benchmark::State& state, std::int64_t n, std::int64_t k) {
  const OpBench bench(state);
  const AffineParams format{4, 64};
  const Buffer w = bench.random(DType::f32, {n, k});
  testing::HostTensor l = testing::random_tensor(DType::f32, {k, k}, 2, 0.01);
  for (std::int64_t i = 0; i < k; ++i) l.values[i * k + i] = 1.0;
  const Buffer factor = upload(bench.device(), l);
  const Buffer scales = bench.random(DType::f32, scales_shape(w.shape(), format), 0.2);
  const Buffer codes = bench.output(DType::u32, packed_shape(w.shape(), format));
  const double flops = static_cast<double>(n) * static_cast<double>(k) * static_cast<double>(k);
  bench.run(
      [&](CommandEncoder& encoder) {
        gptq_forward(encoder, w, factor, {codes, scales, scales, format});
      },
      w.bytes() + factor.bytes() / 2 + codes.bytes() + 2 * scales.bytes(), flops);
}

OP_BENCH(forward, f32_192x576, 192, 576);
OP_BENCH(forward, f32_576x576, 576, 576);
OP_BENCH(forward, f32_1536x576, 1536, 576);
OP_BENCH(forward, f32_576x1536, 576, 1536);
OP_BENCH(forward, f32_4096x4096, 4096, 4096);

}  // namespace
}  // namespace mixtape
