#include "mixtape/ops/quantized_matmul/quantized_matmul.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr AffineParams kFormat{4, 64};

QuantizedWeight random_weight(const OpBench& bench, std::int64_t n, std::int64_t k) {
  const Buffer codes =
      upload(bench.device(), testing::random_indices({n, kFormat.packed_cols(k)}, 1, std::int64_t{1} << 32));
  return {codes, bench.random(DType::f32, {n, kFormat.groups(k)}),
          bench.random(DType::f32, {n, kFormat.groups(k)}), kFormat};
}

double flops(std::int64_t rows, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(rows * n * k);
}

void forward(benchmark::State& state, std::int64_t rows, std::int64_t n, std::int64_t k) {
  const OpBench bench(state);
  const QuantizedWeight w = random_weight(bench, n, k);
  const Buffer x = bench.random(DType::bf16, {rows, k}), y = bench.output(DType::bf16, {rows, n});
  bench.run([&](CommandEncoder& encoder) { quantized_matmul_forward(encoder, x, w, {}, y); },
            x.bytes() + w.codes.bytes() + y.bytes(), flops(rows, n, k));
}

void backward_x(benchmark::State& state, std::int64_t rows, std::int64_t n, std::int64_t k) {
  const OpBench bench(state);
  const QuantizedWeight w = random_weight(bench, n, k);
  const Buffer x = bench.random(DType::bf16, {rows, k}), dy = bench.random(DType::bf16, {rows, n});
  const Buffer dx = bench.output(DType::bf16, {rows, k});
  bench.run(
      [&](CommandEncoder& encoder) {
        quantized_matmul_backward(encoder, x, w, {}, dy, {dx, Accumulate::no}, {}, {});
      },
      dx.bytes() + w.codes.bytes() + dy.bytes(), flops(rows, n, k));
}

void backward_scales(benchmark::State& state, std::int64_t rows, std::int64_t n, std::int64_t k) {
  const OpBench bench(state);
  const QuantizedWeight w = random_weight(bench, n, k);
  const Buffer x = bench.random(DType::bf16, {rows, k}), dy = bench.random(DType::bf16, {rows, n});
  const Buffer dscales = bench.output(DType::f32, w.scales.shape()),
               dbiases = bench.output(DType::f32, w.scales.shape());
  bench.run(
      [&](CommandEncoder& encoder) {
        quantized_matmul_backward(encoder, x, w, {}, dy, {}, {dscales, Accumulate::no},
                                  {dbiases, Accumulate::no});
      },
      x.bytes() + w.codes.bytes() + dy.bytes(), flops(rows, n, k));
}

OP_BENCH(forward, bf16_1x1536x576, 1, 1536, 576);
OP_BENCH(forward, bf16_2048x1536x576, 2048, 1536, 576);
OP_BENCH(backward_x, bf16_2048x1536x576, 2048, 1536, 576);
OP_BENCH(backward_scales, bf16_2048x1536x576, 2048, 1536, 576);

}  // namespace
}  // namespace mixtape
