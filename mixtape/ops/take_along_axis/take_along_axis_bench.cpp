#include "mixtape/ops/take_along_axis/take_along_axis.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

Buffer indices(const OpBench& bench, std::int64_t rows, std::int64_t cols, std::int64_t k) {
  return upload(bench.device(), testing::random_indices({rows, k}, 3, cols));
}

void forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t k) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {rows, cols});
  const Buffer index = indices(bench, rows, cols, k);
  const Buffer y = bench.output(dtype, {rows, k});
  bench.run([&](CommandEncoder& encoder) { take_along_axis_forward(encoder, x, index, y); },
            2 * y.bytes() + index.bytes());
}

void backward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t k) {
  const OpBench bench(state);
  const Buffer index = indices(bench, rows, cols, k);
  const Buffer dy = bench.random(dtype, {rows, k});
  const Buffer dx = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { take_along_axis_backward(encoder, index, dy, dx); },
            dx.bytes() + dy.bytes() + index.bytes());
}

OP_BENCH(forward, f32_8192x128_k8, DType::f32, 8192, 128, 8);
OP_BENCH(forward, bf16_8192x128_k8, DType::bf16, 8192, 128, 8);
OP_BENCH(forward, f32_131072x128_k8, DType::f32, 131072, 128, 8);
OP_BENCH(forward, f32_256x151936_k1024, DType::f32, 256, 151936, 1024);
OP_BENCH(backward, f32_8192x128_k8, DType::f32, 8192, 128, 8);
OP_BENCH(backward, bf16_8192x128_k8, DType::bf16, 8192, 128, 8);
OP_BENCH(backward, f32_131072x128_k8, DType::f32, 131072, 128, 8);
OP_BENCH(backward, bf16_131072x128_k8, DType::bf16, 131072, 128, 8);
OP_BENCH(backward, f32_256x151936_k1024, DType::f32, 256, 151936, 1024);

}  // namespace
}  // namespace mixtape
