#include <dnnl.hpp>

#include "mixtape/ops/matmul/matmul.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

double flops(std::int64_t m, std::int64_t n, std::int64_t k) { return 2.0 * static_cast<double>(m * n * k); }

// The yardstick: oneDNN with its own types and threads.
void onednn(benchmark::State& state, dnnl::memory::data_type type) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const dnnl::memory::desc desc({1024, 1024}, type, dnnl::memory::format_tag::ab);
#if DNNL_VERSION_MAJOR < 3
  const dnnl::matmul matmul({dnnl::matmul::desc(desc, desc, desc), engine});
#else
  const dnnl::matmul matmul({engine, desc, desc, desc});
#endif
  const OpBench bench(state);
  const DType dtype = type == dnnl::memory::data_type::f32 ? DType::f32 : DType::bf16;
  const Buffer a = bench.random(dtype, {1024, 1024}), b = bench.random(dtype, {1024, 1024});
  const Buffer y = bench.output(dtype, {1024, 1024});
  const dnnl::memory ma(desc, engine, a.host_bytes()), mb(desc, engine, b.host_bytes()),
      my(desc, engine, y.host_bytes());
  bench.run(
      [&](CommandEncoder&) {
        matmul.execute(stream, {{DNNL_ARG_SRC, ma}, {DNNL_ARG_WEIGHTS, mb}, {DNNL_ARG_DST, my}});
        stream.wait();
      },
      3 * a.bytes(), flops(1024, 1024, 1024));
}

void forward(benchmark::State& state, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {m, k}), b = bench.random(dtype, {n, k});
  const Buffer y = bench.output(dtype, {m, n});
  bench.run([&](CommandEncoder& encoder) { matmul_forward(encoder, a, b, y, false, true); },
            a.bytes() + b.bytes() + y.bytes(), flops(m, n, k));
}

void backward_a(benchmark::State& state, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {m, k}), b = bench.random(dtype, {n, k});
  const Buffer dy = bench.random(dtype, {m, n}), da = bench.output(dtype, {m, k});
  bench.run(
      [&](CommandEncoder& encoder) {
        matmul_backward(encoder, a, b, dy, {da, Accumulate::no}, {}, false, true);
      },
      da.bytes() + b.bytes() + dy.bytes(), flops(m, n, k));
}

void backward_b(benchmark::State& state, DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  const OpBench bench(state);
  const Buffer a = bench.random(dtype, {m, k}), b = bench.random(dtype, {n, k});
  const Buffer dy = bench.random(dtype, {m, n}), db = bench.output(dtype, {n, k});
  bench.run(
      [&](CommandEncoder& encoder) {
        matmul_backward(encoder, a, b, dy, {}, {db, Accumulate::no}, false, true);
      },
      a.bytes() + db.bytes() + dy.bytes(), flops(m, n, k));
}

OP_BENCH(onednn, bf16_1024, dnnl::memory::data_type::bf16);
OP_BENCH(onednn, f32_1024, dnnl::memory::data_type::f32);
OP_BENCH(forward, bf16_1024, DType::bf16, 1024, 1024, 1024);
OP_BENCH(forward, f32_1024, DType::f32, 1024, 1024, 1024);
OP_BENCH(forward, bf16_one_token, DType::bf16, 1, 1536, 576);
OP_BENCH(forward, bf16_up, DType::bf16, 2048, 1536, 576);
OP_BENCH(backward_a, bf16_up, DType::bf16, 2048, 1536, 576);
OP_BENCH(backward_b, bf16_up, DType::bf16, 2048, 1536, 576);
OP_BENCH(forward, bf16_head, DType::bf16, 2048, 49152, 576);

}  // namespace
}  // namespace mixtape
