#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/testing/op_bench.h"

namespace mixtape {
namespace {

using testing::OpBench;

struct Rows {
  Rows(const OpBench& bench, DType dtype, std::int64_t rows, std::int64_t cols)
      : teacher(bench.random(dtype, {rows, cols}, 3.0)),
        student(bench.random(dtype, {rows, cols}, 3.0)),
        gradient(bench.output(dtype, {rows, cols})),
        loss(bench.output(DType::f32, {rows})),
        stats(bench.output(DType::f32, {rows, kKlStats})),
        dloss(bench.random(DType::f32, {rows})) {}
  Buffer teacher, student, gradient, loss, stats, dloss;
};

void full(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Rows r(bench, dtype, rows, cols);
  bench.run(
      [&](CommandEncoder& encoder) {
        kl_div_forward(encoder, r.teacher, r.student, 2.0f, r.loss, r.stats);
        kl_div_backward(encoder, r.teacher, r.student, 2.0f, r.stats, r.dloss, r.gradient);
      },
      5 * r.student.bytes());
}

void both(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Rows r(bench, dtype, rows, cols);
  bench.run(
      [&](CommandEncoder& encoder) {
        kl_div_forward_backward(encoder, r.teacher, r.student, 2.0f, r.dloss, r.loss, r.gradient);
      },
      3 * r.student.bytes());
}

void cached(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols, bool rest_bucket) {
  const OpBench bench(state);
  const Rows r(bench, dtype, rows, cols);
  CommandEncoder once(bench.device());
  const TopKTargets targets = make_top_k_targets(once, r.teacher, 1024, 2.0f);
  once.commit_and_wait();
  bench.run(
      [&](CommandEncoder& encoder) {
        kl_div_top_k_forward(encoder, targets, r.student, 2.0f, rest_bucket, r.loss, r.stats);
        kl_div_top_k_backward(encoder, targets, r.student, 2.0f, rest_bucket, r.stats, r.dloss, r.gradient);
      },
      (rest_bucket ? 3 : 1) * r.student.bytes());
}

void select(benchmark::State& state, DType dtype, std::int64_t rows, std::int64_t cols) {
  const OpBench bench(state);
  const Buffer teacher = bench.random(dtype, {rows, cols}, 3.0);
  bench.run([&](CommandEncoder& encoder) { make_top_k_targets(encoder, teacher, 1024, 2.0f); },
            teacher.bytes());
}

OP_BENCH(full, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(full, f32_512x151936, DType::f32, 512, 151936);
OP_BENCH(full, bf16_512x49152, DType::bf16, 512, 49152);
OP_BENCH(full, bf16_512x151936, DType::bf16, 512, 151936);
OP_BENCH(both, f32_512x1024, DType::f32, 512, 1024);
OP_BENCH(both, f32_512x151936, DType::f32, 512, 151936);
OP_BENCH(both, bf16_512x151936, DType::bf16, 512, 151936);
OP_BENCH(cached, bf16_512x49152, DType::bf16, 512, 49152, false);
OP_BENCH(cached, bf16_512x49152_rest, DType::bf16, 512, 49152, true);
OP_BENCH(cached, bf16_512x151936_rest, DType::bf16, 512, 151936, true);
OP_BENCH(select, bf16_512x49152, DType::bf16, 512, 49152);
OP_BENCH(select, bf16_512x151936, DType::bf16, 512, 151936);

}  // namespace
}  // namespace mixtape
