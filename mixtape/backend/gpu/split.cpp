#include "mixtape/backend/gpu/split.h"

#include "mixtape/backend/gpu/split_params.h"

namespace mixtape::gpu {
namespace {

std::size_t bytes_of(std::int64_t count, DType dtype) {
  return static_cast<std::size_t>(count) * size_of(dtype);
}

// Each row's parts side by side: [rows, 3, cols].
std::shared_ptr<Memory> parts_of(const Call& call, const Argument& x, std::int64_t rows, std::int64_t cols) {
  auto parts = call.queue.scratch(bytes_of(kSplitParts * rows * cols, DType::bf16));
  call.launch("split_f32", grid_for(rows * cols), kBlock256, SplitParams{rows * cols, cols}, {x, *parts});
  return parts;
}

// c = [a1 | a2 | a3] [b; b; b]
void along_the_sum(const Call& call, Gemm g) {
  const auto parts = parts_of(call, g.a, g.m, g.k);
  const std::size_t bytes = bytes_of(g.k * g.n, DType::bf16);
  const auto repeated = call.queue.scratch(kSplitParts * bytes);
  for (std::size_t i = 0; i < kSplitParts; ++i)
    call.queue.copy(g.b.part(0, bytes), Argument(*repeated).part(i * bytes, bytes));
  g.a = *parts, g.b = *repeated;
  g.k *= kSplitParts;
  call.queue.gemm(g);
}

// [c1; c2; c3] = [a1 | a2 | a3]^T b, and their sum
void beside_each_other(const Call& call, Gemm g) {
  const auto parts = parts_of(call, g.a, g.k, g.m);
  const auto sums = call.queue.scratch(bytes_of(kSplitParts * g.m * g.n, DType::f32));
  const SplitSumParams sum{g.m * g.n, g.accumulate ? 1u : 0u};
  const Argument c = g.c;
  const std::string kernel = str("split_sum_", g.out);
  g.a = *parts, g.c = *sums;
  g.m *= kSplitParts;
  g.out = DType::f32;
  g.accumulate = false;
  call.queue.gemm(g);
  call.launch(kernel, grid_for(sum.count), kBlock256, sum, {*sums, c});
}

}  // namespace

bool can_split(const Gemm& g, DType a, DType b) {
  return a == DType::f32 && b == DType::bf16 && !g.trans_b && g.batch == 1 && g.out != DType::f16 &&
         g.addend.memory == nullptr;
}

void split_gemm(const Call& call, Gemm gemm) {
  gemm.in = DType::bf16;
  gemm.trans_a ? beside_each_other(call, gemm) : along_the_sum(call, gemm);
}

}  // namespace mixtape::gpu
