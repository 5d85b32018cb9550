#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/rms_norm/rms_norm_cpu.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T, class W>
void rms_norm_row(const T* x, const W* w, float rstd, T* y, std::size_t cols, bool is_large) {
  const Floats r = set(rstd);
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Mul(hn::Mul(step.load(x + c), r), step.load(w + c)), y + c);
  });
}

template <class T, class W = T>
void rms_norm_forward(const HostCall& call) {
  const auto& p = call.params<RmsNormParams>();
  const T* x = call.read<T>(0);
  const W* w = call.read<W>(1);
  T* y = call.write<T>(0);
  float* rstd = call.write<float>(1);
  const auto cols = static_cast<std::size_t>(p.cols);
  const bool is_large = streams(y, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* row = x + r * p.cols;
      rstd[r] = 1.0f / std::sqrt(dot_of(row, row, cols) / static_cast<float>(p.cols) + p.eps);
      rms_norm_row(row, w, rstd[r], y + r * p.cols, cols, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(rms_norm_forward)
[[maybe_unused]] void rms_norm_forward_bf16_w_f32(const HostCall& call) {
  rms_norm_forward<bf16, float>(call);
}
[[maybe_unused]] void rms_norm_forward_f16_w_f32(const HostCall& call) { rms_norm_forward<f16, float>(call); }

// Returns sum dy*w*x; with kAddsWeight dw += dy*x*rstd in the same pass. Fetches x two rows on: the pass that
// writes dx fetches dy, and so both passes keep the memory busy.
template <bool kAddsWeight, class T, class W>
float gather_row(const T* x, const W* w, float rstd, const T* dy, float* dw, std::size_t cols) {
  const Floats r = set(rstd);
  Floats dots0 = zero(), dots1 = zero();
  const auto add = [&](std::size_t c, std::size_t n, Floats& dots) HWY_ATTR {
    __builtin_prefetch(x + c + 2 * cols, 0, 2);
    const Floats in = load(x + c, n), upstream = load(dy + c, n);
    dots = hn::MulAdd(hn::Mul(upstream, load(w + c, n)), in, dots);
    if constexpr (kAddsWeight) store(hn::MulAdd(upstream, hn::Mul(in, r), load(dw + c, n)), dw + c, n);
  };
  std::size_t c = 0;
  for (; c + 2 * lanes() <= cols; c += 2 * lanes()) {
    add(c, lanes(), dots0);
    add(c + lanes(), lanes(), dots1);
  }
  for (; c < cols; c += lanes()) add(c, cols - c, dots0);
  return sum_lanes(hn::Add(dots0, dots1));
}

// dx = rstd * (dy*w - x*slope), slope = rstd^2/cols * sum dy*w*x
template <class T, class W>
void rms_norm_backward_row(const T* x, const W* w, float rstd, float slope, const T* dy, T* dx,
                           std::size_t cols, bool accumulate, bool is_large) {
  const Floats r = set(rstd), k = set(slope);
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats g = hn::Mul(step.load(dy + c), step.load(w + c));
    const Floats d = hn::Mul(r, hn::NegMulAdd(step.load(x + c), k, g));
    step.store(accumulate ? hn::Add(step.load(dx + c), d) : d, dx + c);
  });
}

// Writes dx, and per block of rows a partial dw. dx comes last: it may overwrite dy.
template <class T, class W = T>
void rms_norm_backward(const HostCall& call) {
  const auto& p = call.params<RmsNormParams>();
  const T* x = call.read<T>(0);
  const W* w = call.read<W>(1);
  const float* rstd = call.read<float>(2);
  const T* dy = call.read<T>(3);
  T* dx = p.wants_dx ? call.write<T>(0) : nullptr;
  float* partials = p.wants_dw ? call.write<float>(p.wants_dx) : nullptr;
  const auto cols = static_cast<std::size_t>(p.cols);
  const bool accumulate = p.accumulate_dx != 0;
  const bool is_large = p.wants_dx && !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, p.row_block, [&](std::int64_t begin, std::int64_t end) {
    float* partial = partials + begin / p.row_block * p.cols;
    if (p.wants_dw) std::fill(partial, partial + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      const float dot = p.wants_dw ? gather_row<true>(x + at, w, rstd[r], dy + at, partial, cols)
                                   : gather_row<false>(x + at, w, rstd[r], dy + at, partial, cols);
      if (!p.wants_dx) continue;
      const float slope = dot * rstd[r] / static_cast<float>(p.cols) * rstd[r];
      rms_norm_backward_row(x + at, w, rstd[r], slope, dy + at, dx + at, cols, accumulate, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(rms_norm_backward)
[[maybe_unused]] void rms_norm_backward_bf16_w_f32(const HostCall& call) {
  rms_norm_backward<bf16, float>(call);
}
[[maybe_unused]] void rms_norm_backward_f16_w_f32(const HostCall& call) {
  rms_norm_backward<f16, float>(call);
}

template <class W>
void add_blocks(const float* partials, std::int64_t blocks, std::int64_t stride, W* dw, std::size_t cols,
                bool accumulate) {
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    Floats sum = zero();
    for (std::int64_t b = 0; b < blocks; ++b) sum = hn::Add(sum, load(partials + b * stride + c, n));
    store(accumulate ? hn::Add(load(dw + c, n), sum) : sum, dw + c, n);
  }
}

template <class W>
void rms_norm_backward_weight(const HostCall& call) {
  const auto& p = call.params<RmsNormParams>();
  const float* partials = call.read<float>(0);
  W* dw = call.write<W>(0);
  const std::int64_t blocks = (p.rows + p.row_block - 1) / p.row_block;
  cpu::parallel_for(p.cols, 1024, [&](std::int64_t begin, std::int64_t end) {
    add_blocks(partials + begin, blocks, p.cols, dw + begin, static_cast<std::size_t>(end - begin),
               p.accumulate_dw != 0);
  });
}
MIXTAPE_SIMD_KERNEL(rms_norm_backward_weight)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(rms_norm_forward)
MIXTAPE_REGISTER_SIMD_ONE(rms_norm_forward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(rms_norm_forward_f16_w_f32)
MIXTAPE_REGISTER_SIMD_KERNEL(rms_norm_backward)
MIXTAPE_REGISTER_SIMD_ONE(rms_norm_backward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(rms_norm_backward_f16_w_f32)
MIXTAPE_REGISTER_SIMD_KERNEL(rms_norm_backward_weight)
}  // namespace mixtape
#endif
