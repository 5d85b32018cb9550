#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/elementwise/select.h"
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

void add_forward(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols,
                 const Shape& side) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {rows, cols});
  const Buffer b = bench.random(dtype, side);
  const Buffer y = bench.output(dtype, {rows, cols});
  bench.run([&](CommandEncoder& encoder) { binary_forward(encoder, Binary::add, a, b, y); },
            2 * a.bytes() + b.bytes());
}

void maximum_forward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {n}), b = bench.random(dtype, {n}), y = bench.output(dtype, {n});
  bench.run([&](CommandEncoder& encoder) { binary_forward(encoder, Binary::maximum, a, b, y); },
            3 * a.bytes());
}

void less_forward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {n}), b = bench.random(dtype, {n}), y = bench.output(DType::u8, {n});
  bench.run([&](CommandEncoder& encoder) { compare_forward(encoder, Comparison::less, a, b, y); },
            2 * a.bytes() + y.bytes());
}

void choose_forward(benchmark::State& state, DType dtype, std::int64_t n) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {n}), b = bench.random(dtype, {n}), y = bench.output(dtype, {n});
  const Buffer mask = bench.output(DType::u8, {n});
  bench.run([&](CommandEncoder& encoder) { where_forward(encoder, mask, a, b, y); },
            3 * a.bytes() + mask.bytes());
}

void cast_value(benchmark::State& state, DType from, DType to, std::int64_t n) {
  const OpBench bench(state);
  const Buffer x = bench.random(from, {n});
  const Buffer y = bench.output(to, {n});
  bench.run([&](CommandEncoder& encoder) { cast_forward(encoder, x, y); }, x.bytes() + y.bytes());
}

void broadcast_gradient(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {rows, cols});
  const Buffer dy = bench.random(dtype, {rows, cols});
  const Buffer db = bench.output(dtype, {cols});
  bench.run([&](CommandEncoder& encoder) { binary_backward_b(encoder, Binary::mul, a, Buffer(), dy, db); },
            2 * a.bytes() + db.bytes());
}

#define UNARY_BENCH(op)                                                                       \
  void op##_forward(benchmark::State& state, DType dtype, std::int64_t n) {                   \
    unary_value(state, Unary::op, dtype, n);                                                  \
  }                                                                                           \
  [[maybe_unused]] void op##_backward(benchmark::State& state, DType dtype, std::int64_t n) { \
    unary_gradient(state, Unary::op, dtype, n);                                               \
  }                                                                                           \
  OP_BENCH(op##_forward, f32_65536, DType::f32, 65536);                                       \
  OP_BENCH(op##_forward, f32_262144, DType::f32, 262144);                                     \
  OP_BENCH(op##_forward, f32_16777216, DType::f32, 16777216);                                 \
  OP_BENCH(op##_forward, bf16_16777216, DType::bf16, 16777216);
UNARY_BENCH(scale)
UNARY_BENCH(exp)
UNARY_BENCH(gelu)
UNARY_BENCH(silu)
UNARY_BENCH(tanh)
UNARY_BENCH(log)
UNARY_BENCH(relu)
UNARY_BENCH(power)
UNARY_BENCH(divide)

OP_BENCH(silu_backward, f32_262144, DType::f32, 262144);
OP_BENCH(silu_backward, f32_16777216, DType::f32, 16777216);
OP_BENCH(silu_backward, bf16_16777216, DType::bf16, 16777216);
OP_BENCH(add_forward, f32_65536, DType::f32, 16, 4096, {16, 4096});
OP_BENCH(add_forward, f32_262144, DType::f32, 64, 4096, {64, 4096});
OP_BENCH(add_forward, f32_16777216, DType::f32, 4096, 4096, {4096, 4096});
OP_BENCH(add_forward, bf16_16777216, DType::bf16, 4096, 4096, {4096, 4096});
OP_BENCH(add_forward, f32_8192x4096_row, DType::f32, 8192, 4096, {4096});
OP_BENCH(add_forward, f32_262144_scalar, DType::f32, 1 << 18, 1, {1});
OP_BENCH(broadcast_gradient, f32_8192x4096, DType::f32, 8192, 4096);
OP_BENCH(broadcast_gradient, bf16_8192x4096, DType::bf16, 8192, 4096);
OP_BENCH(broadcast_gradient, f32_262144x16, DType::f32, 262144, 16);
OP_BENCH(maximum_forward, f32_16777216, DType::f32, 16777216);
OP_BENCH(less_forward, f32_16777216, DType::f32, 16777216);
OP_BENCH(choose_forward, f32_16777216, DType::f32, 16777216);
OP_BENCH(cast_value, f32_16777216_to_bf16, DType::f32, DType::bf16, 16777216);
OP_BENCH(cast_value, bf16_16777216_to_f32, DType::bf16, DType::f32, 16777216);

}  // namespace
}  // namespace mixtape
