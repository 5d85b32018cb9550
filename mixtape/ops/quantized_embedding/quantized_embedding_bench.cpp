#include "mixtape/ops/quantized_embedding/quantized_embedding.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

constexpr AffineParams kParams{4, 64};

struct Table {
  QuantizedWeight weight;
  Buffer ids;
};

Table make_table(const OpBench& bench, std::int64_t rows, std::int64_t hidden, std::int64_t count) {
  return {{bench.output(DType::u32, {rows, kParams.packed_cols(hidden)}),
           bench.random(DType::f32, {rows, kParams.groups(hidden)}),
           bench.random(DType::f32, {rows, kParams.groups(hidden)}), kParams},
          upload(bench.device(), testing::random_indices({count}, 1, rows))};
}

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t hidden,
             std::int64_t count) {
  const OpBench bench(state);
  const Table t = make_table(bench, rows, hidden, count);
  const Buffer y = bench.output(dtype, {count, hidden});
  bench.run([&](CommandEncoder& encoder) { quantized_embedding_forward(encoder, t.weight, t.ids, y); },
            y.bytes() + static_cast<std::size_t>(count * (hidden / 2 + hidden / 8)));
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t hidden,
              std::int64_t count) {
  const OpBench bench(state);
  const Table t = make_table(bench, rows, hidden, count);
  const Buffer dy = bench.output(dtype, {count, hidden});
  const Buffer dscales = bench.output(DType::f32, t.weight.scales.shape()),
               dbiases = bench.output(DType::f32, t.weight.scales.shape());
  bench.run(
      [&](CommandEncoder& encoder) {
        quantized_embedding_backward(encoder, t.weight, t.ids, dy, {dscales, Accumulate::no},
                                     {dbiases, Accumulate::no});
      },
      dy.bytes() + t.weight.codes.bytes() + 2 * dscales.bytes());
}

OP_BENCH(forward, f32_4096x256_of_1024, DType::f32, 4096, 256, 1024);
OP_BENCH(forward, bf16_151936x2048_of_65536, DType::bf16, 151936, 2048, 65536);
OP_BENCH(backward, f32_4096x256_of_1024, DType::f32, 4096, 256, 1024);
OP_BENCH(backward, bf16_151936x2048_of_65536, DType::bf16, 151936, 2048, 65536);

}  // namespace
}  // namespace mixtape
