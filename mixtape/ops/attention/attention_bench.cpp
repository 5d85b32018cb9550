#include "mixtape/ops/attention/attention.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

struct Sizes {
  std::int64_t batch, length, q_heads, kv_heads, head_dim;
  Shape q() const { return {batch, length, q_heads, head_dim}; }
  Shape k() const { return {batch, length, kv_heads, head_dim}; }
  // Two products forward, five backward, over the causal half.
  double flops(double products) const {
    return products * static_cast<double>(batch * q_heads * head_dim) * static_cast<double>(length * length);
  }
};

void forward(benchmark::State& state, DType dtype, const Sizes& s) {
  const OpBench bench(state);
  const Buffer q = bench.random(dtype, s.q()), k = bench.random(dtype, s.k()), v = bench.random(dtype, s.k());
  const Buffer y = bench.output(dtype, s.q()), lse = bench.output(DType::f32, {s.batch, s.q_heads, s.length});
  bench.run([&](CommandEncoder& encoder) { attention_forward(encoder, q, k, v, {.scale = 0.125f}, y, lse); },
            q.bytes() + k.bytes() + v.bytes() + y.bytes(), s.flops(2.0));
}

void backward(benchmark::State& state, DType dtype, const Sizes& s) {
  const OpBench bench(state);
  const Buffer q = bench.random(dtype, s.q()), k = bench.random(dtype, s.k()), v = bench.random(dtype, s.k());
  const Buffer y = bench.output(dtype, s.q()), lse = bench.output(DType::f32, {s.batch, s.q_heads, s.length});
  const Buffer dy = bench.random(dtype, s.q());
  const Buffer dq = bench.output(dtype, s.q()), dk = bench.output(dtype, s.k()),
               dv = bench.output(dtype, s.k());
  CommandEncoder first(bench.device());
  attention_forward(first, q, k, v, {.scale = 0.125f}, y, lse);
  const auto no = Accumulate::no;
  bench.run(
      [&](CommandEncoder& encoder) {
        attention_backward(encoder, q, k, v, {.scale = 0.125f}, y, lse, dy, {dq, no}, {dk, no}, {dv, no});
      },
      4 * q.bytes() + 4 * k.bytes(), s.flops(5.0));
}

constexpr Sizes kSmall{4, 512, 9, 3, 64};
constexpr Sizes kLong{1, 2048, 8, 2, 128};
OP_BENCH(forward, bf16_4x512x9x64, DType::bf16, kSmall);
OP_BENCH(backward, bf16_4x512x9x64, DType::bf16, kSmall);
OP_BENCH(forward, bf16_1x2048x8x128, DType::bf16, kLong);
OP_BENCH(backward, bf16_1x2048x8x128, DType::bf16, kLong);

}  // namespace
}  // namespace mixtape
