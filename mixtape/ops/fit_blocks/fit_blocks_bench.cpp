#include "mixtape/ops/fit_blocks/fit_blocks.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void forward(benchmark::State& state, BlockType type) {
  const OpBench bench(state);
  const Buffer w = bench.random(DType::f32, {1536, 768}, 0.02);
  const Buffer h = Buffer::from(bench.device(), {768}, std::vector<float>(768, 1.0f));
  const QuantizedWeight q = alloc_blocks(bench.device(), w.shape(), type);
  bench.run([&](CommandEncoder& encoder) { fit_blocks_forward(encoder, w, h, q); },
            w.bytes() + q.codes.bytes());
}

OP_BENCH(forward, q2_k_1536x768, BlockType::q2_k);
OP_BENCH(forward, q3_k_1536x768, BlockType::q3_k);
OP_BENCH(forward, q4_k_1536x768, BlockType::q4_k);
OP_BENCH(forward, q6_k_1536x768, BlockType::q6_k);
OP_BENCH(forward, q8_0_1536x768, BlockType::q8_0);

}  // namespace
}  // namespace mixtape
