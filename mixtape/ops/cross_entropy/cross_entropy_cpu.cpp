#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/cross_entropy/cross_entropy_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/logits-inl.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/cross_entropy/cross_entropy_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {
namespace {

using logits::LogSumExp;

// The row's target, or -1 where it is ignored or, reported, out of range.
std::int64_t target_of(const HostCall& call, const CrossEntropyParams& p, std::int64_t row) {
  const std::uint32_t bits = call.read<std::uint32_t>(1)[row];
  if (bits == kIgnoreTarget) return -1;
  const std::int64_t target =
      p.is_signed != 0 ? std::int64_t{static_cast<std::int32_t>(bits)} : std::int64_t{bits};
  if (target >= 0 && target < p.cols) return target;
  call.report_index(row, target, p.cols);
  return -1;
}

template <class T>
void forward_row(const T* x, std::size_t cols, std::int64_t target, float* loss, LogSumExp* lse) {
  *loss = 0.0f;
  *lse = {0.0f, 0.0f};
  if (target < 0) return;
  const auto [max, sum] = logits::max_and_sum(x, cols, 1.0f);
  const double log_sum = std::log(sum);
  *lse = {max, static_cast<float>(log_sum)};
  const double gap = static_cast<double>(max) - static_cast<double>(static_cast<float>(x[target]));
  *loss = static_cast<float>(gap + log_sum);
}

template <class T>
void backward_row(const T* x, std::size_t cols, std::int64_t target, LogSumExp lse, float dloss, T* dx,
                  bool accumulate, bool is_large) {
  if (target < 0 || dloss == 0.0f) {
    if (!accumulate) std::fill(dx, dx + cols, T(0.0f));
    return;
  }
  const double log_p = static_cast<double>(static_cast<float>(x[target])) - static_cast<double>(lse.max) -
                       static_cast<double>(lse.log_sum);
  const double old = accumulate ? static_cast<double>(static_cast<float>(dx[target])) : 0.0;
  const double at_target = old + static_cast<double>(dloss) * std::expm1(log_p);
  logits::weighted_softmax(x, dx, cols, 1.0f, lse, dloss, accumulate, is_large);
  dx[target] = T(static_cast<float>(at_target));
}

}  // namespace

template <class T>
void cross_entropy_forward(const HostCall& call) {
  const auto& p = call.params<CrossEntropyParams>();
  const T* x = call.read<T>(0);
  float* loss = call.write<float>(0);
  auto* lse = call.write<LogSumExp>(1);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      forward_row(x + r * p.cols, static_cast<std::size_t>(p.cols), target_of(call, p, r), loss + r, lse + r);
    }
  });
}
MIXTAPE_SIMD_KERNEL(cross_entropy_forward)

template <class T>
void cross_entropy_backward(const HostCall& call) {
  const auto& p = call.params<CrossEntropyParams>();
  const T* x = call.read<T>(0);
  const auto* lse = call.read<LogSumExp>(2);
  const float* dloss = call.read<float>(3);
  T* dx = call.write<T>(0);
  const bool accumulate = p.accumulate != 0, is_large = !accumulate && dx != x && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      backward_row(x + r * p.cols, static_cast<std::size_t>(p.cols), target_of(call, p, r), lse[r], dloss[r],
                   dx + r * p.cols, accumulate, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(cross_entropy_backward)

template <class T>
void cross_entropy_forward_backward(const HostCall& call) {
  const auto& p = call.params<CrossEntropyParams>();
  const auto cols = static_cast<std::size_t>(p.cols);
  T* dx = call.write<T>(1);
  const bool is_large = dx != call.read<T>(0) && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* x = call.read<T>(0) + r * p.cols;
      const std::int64_t target = target_of(call, p, r);
      LogSumExp lse{};
      forward_row(x, cols, target, call.write<float>(0) + r, &lse);
      backward_row(x, cols, target, lse, call.read<float>(2)[r], dx + r * p.cols, false, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(cross_entropy_forward_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(cross_entropy_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(cross_entropy_backward)
MIXTAPE_REGISTER_SIMD_KERNEL(cross_entropy_forward_backward)
}  // namespace mixtape
#endif
