#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

void unary_value(benchmark::State& state, Unary op, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {n});
  const Buffer y = bench.output(dtype, {n});
  bench.run([&](CommandEncoder& encoder) { unary_forward(encoder, op, x, y); }, 2 * x.bytes());
}

void unary_gradient(benchmark::State& state, Unary op, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer x = bench.random(dtype, {n});
  const Buffer dy = bench.random(dtype, {n});
  const Buffer dx = bench.output(dtype, {n});
  bench.run([&](CommandEncoder& encoder) { unary_backward(encoder, op, x, dy, dx); }, 3 * x.bytes());
}

void add_value(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols,
               const Shape& side) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {rows, cols});
  const Buffer b = bench.random(dtype, side);
  const Buffer y = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { binary_forward(encoder, Binary::add, a, b, y); },
            2 * a.bytes() + b.bytes());
}

void broadcast_gradient(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {rows, cols});
  const Buffer dy = bench.random(dtype, {rows, cols});
  const Buffer db = bench.output(dtype, {cols});
  bench.run([&](CommandEncoder& encoder) { mul_backward(encoder, a, dy, db); }, 2 * a.bytes() + db.bytes());
}

constexpr std::int64_t kCache = 1 << 18, kLarge = 1 << 25;
BENCHMARK_CAPTURE(unary_value, scale_f32_cache, Unary::scale, DType::f32, kCache);
BENCHMARK_CAPTURE(unary_value, scale_f32, Unary::scale, DType::f32, kLarge);
BENCHMARK_CAPTURE(unary_value, silu_f32_cache, Unary::silu, DType::f32, kCache);
BENCHMARK_CAPTURE(unary_value, silu_f32, Unary::silu, DType::f32, kLarge);
BENCHMARK_CAPTURE(unary_value, silu_bf16, Unary::silu, DType::bf16, kLarge);
BENCHMARK_CAPTURE(unary_value, gelu_f32_cache, Unary::gelu, DType::f32, kCache);
BENCHMARK_CAPTURE(unary_value, tanh_f32_cache, Unary::tanh, DType::f32, kCache);
BENCHMARK_CAPTURE(unary_value, log_f32_cache, Unary::log, DType::f32, kCache);
BENCHMARK_CAPTURE(unary_gradient, silu_f32, Unary::silu, DType::f32, kLarge);
BENCHMARK_CAPTURE(unary_gradient, silu_bf16, Unary::silu, DType::bf16, kLarge);
BENCHMARK_CAPTURE(add_value, same_f32, DType::f32, 8192, 4096, {8192, 4096});
BENCHMARK_CAPTURE(add_value, same_bf16, DType::bf16, 8192, 4096, {8192, 4096});
BENCHMARK_CAPTURE(add_value, broadcast_f32, DType::f32, 8192, 4096, {4096});
BENCHMARK_CAPTURE(add_value, one_element_f32, DType::f32, 1 << 18, 1, {1});
BENCHMARK_CAPTURE(broadcast_gradient, f32, DType::f32, 8192, 4096);
BENCHMARK_CAPTURE(broadcast_gradient, bf16, DType::bf16, 8192, 4096);
BENCHMARK_CAPTURE(broadcast_gradient, f32_narrow, DType::f32, 262144, 16);

}  // namespace
}  // namespace mixtape
