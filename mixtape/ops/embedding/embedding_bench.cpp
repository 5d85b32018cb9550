#include <cmath>

#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

enum class Ids { uniform, zipf, one };

// Zipf: id = rows^u - 1 for uniform u, so that the chance of an id falls as 1/id.
Buffer make_ids(const Device& device, Ids kind, std::int64_t count, std::int64_t rows) {
  testing::HostTensor ids = testing::random_indices({count}, 1, kind == Ids::zipf ? 1 << 20 : rows);
  for (double& id : ids.values) {
    if (kind == Ids::one) id = 3;
    if (kind == Ids::zipf) id = std::floor(std::pow(static_cast<double>(rows), id / (1 << 20)) - 1.0);
  }
  return upload(device, ids);
}

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t hidden,
             std::int64_t count) {
  const OpBench bench(state);
  const Buffer table = bench.output(dtype, {rows, hidden});
  const Buffer ids = make_ids(bench.device(), Ids::uniform, count, rows);
  const Buffer y = bench.output(dtype, {count, hidden});
  bench.run([&](CommandEncoder& encoder) { embedding_forward(encoder, table, ids, y); }, 2 * y.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t hidden,
              std::int64_t count, Ids kind) {
  const OpBench bench(state);
  const Buffer ids = make_ids(bench.device(), kind, count, rows);
  const Buffer dy = bench.output(dtype, {count, hidden});
  const Buffer dtable = bench.output(dtype, {rows, hidden});
  bench.run([&](CommandEncoder& encoder) { embedding_backward(encoder, ids, dy, dtable); },
            dy.bytes() + dtable.bytes());
}

OP_BENCH(forward, f32_4096x256_of_1024, DType::f32, 4096, 256, 1024);
OP_BENCH(forward, bf16_151936x2048_of_65536, DType::bf16, 151936, 2048, 65536);
OP_BENCH(backward, f32_4096x256_of_1024, DType::f32, 4096, 256, 1024, Ids::uniform);
OP_BENCH(backward, f32_151936x2048_of_65536, DType::f32, 151936, 2048, 65536, Ids::uniform);
OP_BENCH(backward, bf16_151936x2048_of_65536, DType::bf16, 151936, 2048, 65536, Ids::uniform);
OP_BENCH(backward, f32_zipf, DType::f32, 151936, 2048, 65536, Ids::zipf);
OP_BENCH(backward, f32_one_id, DType::f32, 151936, 2048, 65536, Ids::one);
OP_BENCH(backward, bf16_zipf, DType::bf16, 151936, 2048, 65536, Ids::zipf);
OP_BENCH(backward, bf16_one_id, DType::bf16, 151936, 2048, 65536, Ids::one);

}  // namespace
}  // namespace mixtape
