#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/reduce/reduce_cpu.cpp"
#include <algorithm>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/reduce/reduce_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void spread_run(float value, T* dx, std::size_t n, bool accumulate, bool is_large) {
  for_each_step(n, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(accumulate ? hn::Add(step.load(dx + i), set(value)) : set(value), dx + i);
  });
}

template <class T>
void row_sum_forward(const HostCall& call) {
  const auto& p = call.params<ReduceParams>();
  const T* x = call.read<T>(0);
  T* y = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r)
      y[r] = T(sum_of(x + r * p.cols, static_cast<std::size_t>(p.cols)) / p.divisor);
  });
}
MIXTAPE_SIMD_KERNEL(row_sum_forward)

template <class T>
void row_sum_backward(const HostCall& call) {
  const auto& p = call.params<ReduceParams>();
  const T* dy = call.read<T>(0);
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      spread_run(static_cast<float>(dy[r]) / p.divisor, dx + r * p.cols, static_cast<std::size_t>(p.cols),
                 accumulate, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(row_sum_backward)

template <class T>
void sum_forward(const HostCall& call) {
  const auto& p = call.params<ReduceParams>();
  const T* x = call.read<T>(0);
  std::vector<float> blocks(static_cast<std::size_t>((p.cols + kSumBlock - 1) / kSumBlock));
  cpu::parallel_for(p.cols, kSumBlock, [&](std::int64_t begin, std::int64_t end) {
    blocks[static_cast<std::size_t>(begin / kSumBlock)] =
        sum_of(x + begin, static_cast<std::size_t>(end - begin));
  });
  *call.write<float>(0) = sum_of(blocks.data(), blocks.size()) / p.divisor;
}
MIXTAPE_SIMD_KERNEL(sum_forward)

template <class T>
void sum_backward(const HostCall& call) {
  const auto& p = call.params<ReduceParams>();
  const float value = *call.read<float>(0) / p.divisor;
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && streams(dx, 1, p.cols);
  cpu::parallel_for(p.cols, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    spread_run(value, dx + begin, static_cast<std::size_t>(end - begin), accumulate, is_large);
  });
}
MIXTAPE_SIMD_KERNEL(sum_backward)

// Rows of weight 0 add nothing, even where their loss is infinite or NaN.
float weighted_run(const float* loss, const float* weights, std::size_t n) {
  Floats sum = zero();
  for (std::size_t i = 0; i < n; i += lanes()) {
    const Floats w = load(weights + i, n - i);
    const Floats product = hn::Mul(w, load(loss + i, n - i));
    sum = hn::Add(sum, hn::IfThenElse(hn::Eq(w, zero()), zero(), product));
  }
  return sum_lanes(sum);
}

[[maybe_unused]] void masked_mean_forward_f32(const HostCall& call) {
  const std::int64_t rows = call.params<ReduceParams>().cols;
  const auto* loss = call.read<float>(0);
  const auto* weights = call.read<float>(1);
  std::vector<float> sums(static_cast<std::size_t>((rows + kSumBlock - 1) / kSumBlock));
  std::vector<float> totals(sums.size());
  cpu::parallel_for(rows, kSumBlock, [&](std::int64_t begin, std::int64_t end) {
    const auto block = static_cast<std::size_t>(begin / kSumBlock), n = static_cast<std::size_t>(end - begin);
    sums[block] = weighted_run(loss + begin, weights + begin, n);
    totals[block] = sum_of(weights + begin, n);
  });
  const float total = sum_of(totals.data(), totals.size());
  *call.write<float>(0) = total == 0.0f ? 0.0f : sum_of(sums.data(), sums.size()) / total;
  *call.write<float>(1) = total;
}

void weighted_spread(const float* weights, float factor, float* dloss, std::size_t n, bool accumulate) {
  for (std::size_t i = 0; i < n; i += lanes()) {
    const Floats w = load(weights + i, n - i);
    const Floats d = hn::IfThenElse(hn::Eq(w, zero()), zero(), hn::Mul(w, set(factor)));
    store(accumulate ? hn::Add(load(dloss + i, n - i), d) : d, dloss + i, n - i);
  }
}

[[maybe_unused]] void masked_mean_backward_f32(const HostCall& call) {
  const auto& p = call.params<ReduceParams>();
  const auto* weights = call.read<float>(0);
  const float total = *call.read<float>(1);
  const float factor = total == 0.0f ? 0.0f : *call.read<float>(2) / total;
  auto* dloss = call.write<float>(0);
  cpu::parallel_for(p.cols, cpu::row_grain(1), [&](std::int64_t begin, std::int64_t end) {
    weighted_spread(weights + begin, factor, dloss + begin, static_cast<std::size_t>(end - begin),
                    p.accumulate != 0);
  });
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(row_sum_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(row_sum_backward)
MIXTAPE_REGISTER_SIMD_KERNEL(sum_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(sum_backward)
MIXTAPE_REGISTER_SIMD_ONE(masked_mean_forward_f32)
MIXTAPE_REGISTER_SIMD_ONE(masked_mean_backward_f32)
}  // namespace mixtape
#endif
