#include "mixtape/ops/cholesky/cholesky.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

// n I + a random matrix: positive definite, whatever its triangles say of each other.
Buffer matrix(const OpBench& bench, std::int64_t size) {
  testing::HostTensor h = testing::random_tensor(DType::f32, {size, size}, 1);
  for (std::int64_t i = 0; i < size; ++i) h.values[i * size + i] += 3.0 * static_cast<double>(size);
  return upload(bench.device(), h);
}

void forward(benchmark::State& state, std::int64_t size) {
  const OpBench bench(state);
  const Buffer h = matrix(bench, size), factor = bench.output(DType::f32, {size, size});
  const Buffer min_pivot = bench.output(DType::f32, {1});
  const auto n = static_cast<double>(size);
  bench.run([&](CommandEncoder& encoder) { cholesky_forward(encoder, h, factor, min_pivot); },
            h.bytes() / 2 + factor.bytes(), n * n * n / 3.0);
}

OP_BENCH(forward, f32_576, 576);
OP_BENCH(forward, f32_1536, 1536);
OP_BENCH(forward, f32_4096, 4096);

}  // namespace
}  // namespace mixtape
