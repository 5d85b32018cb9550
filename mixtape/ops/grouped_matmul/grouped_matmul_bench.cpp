#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

// Rows dealt evenly to the experts.
Buffer even_offsets(const OpBench& bench, std::int64_t rows, std::int64_t experts) {
  std::vector<std::uint32_t> offsets;
  for (std::int64_t e = 0; e <= experts; ++e)
    offsets.push_back(static_cast<std::uint32_t>(rows * e / experts));
  return Buffer::from(bench.device(), {experts + 1}, offsets);
}

void forward(benchmark::State& state, std::int64_t rows, std::int64_t experts, std::int64_t n,
             std::int64_t k) {
  const OpBench bench(state);
  const Buffer x = bench.random(DType::bf16, {rows, k}), w = bench.random(DType::bf16, {experts, n, k});
  const Buffer y = bench.output(DType::bf16, {rows, n}), offsets = even_offsets(bench, rows, experts);
  bench.run([&](CommandEncoder& encoder) { grouped_matmul_forward(encoder, x, w, offsets, y); },
            x.bytes() + w.bytes() + y.bytes(), 2.0 * static_cast<double>(rows * n * k));
}

void backward_w(benchmark::State& state, std::int64_t rows, std::int64_t experts, std::int64_t n,
                std::int64_t k) {
  const OpBench bench(state);
  const Buffer x = bench.random(DType::bf16, {rows, k}), dy = bench.random(DType::bf16, {rows, n});
  const Buffer dw = bench.output(DType::bf16, {experts, n, k}), offsets = even_offsets(bench, rows, experts);
  const Buffer w = bench.random(DType::bf16, {experts, n, k});
  bench.run(
      [&](CommandEncoder& encoder) {
        grouped_matmul_backward(encoder, x, w, offsets, dy, {}, {dw, Accumulate::no});
      },
      x.bytes() + dy.bytes() + dw.bytes(), 2.0 * static_cast<double>(rows * n * k));
}

OP_BENCH(forward, bf16_4096x16x768x512, 4096, 16, 768, 512);
OP_BENCH(backward_w, bf16_4096x16x768x512, 4096, 16, 768, 512);

}  // namespace
}  // namespace mixtape
