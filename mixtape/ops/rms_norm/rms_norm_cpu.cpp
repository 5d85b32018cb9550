#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/rms_norm/rms_norm_cpu.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/rows-inl.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T, class W>
struct RmsNormForward {
  const T* x;
  const W* w;
  T* y;
  float* rstd;
  std::int64_t cols;
  float eps;
  float scale = 0.0f;

  template <class Step>
  HWY_INLINE void add(std::int64_t r, std::size_t c, Step step, RowSum& sum) const {
    const Floats in = step.load(x + r * cols + c);
    sum.add_product(in, in);
  }
  HWY_INLINE void settle(std::int64_t r, float sum) {
    rstd[r] = scale = 1.0f / std::sqrt(sum / static_cast<float>(cols) + eps);
  }
  template <class Step>
  HWY_INLINE void write(std::int64_t r, std::size_t c, Step step) const {
    const Floats normed = hn::Mul(step.reload(x + r * cols + c), set(scale));
    step.store(hn::Mul(normed, step.reload(w + c)), y + r * cols + c);
  }
};

template <class T, class W = T>
void rms_norm_forward(const HostCall& call) {
  const auto& p = call.params<RmsNormParams>();
  const T* x = call.read<T>(0);
  const W* w = call.read<W>(1);
  T* y = call.write<T>(0);
  float* rstd = call.write<float>(1);
  const bool is_large = streams(y, p.rows, p.cols);
  const RmsNormForward<T, W> kernel{x, w, y, rstd, p.cols, p.eps};
  parallel_rows(p.rows, is_large, kernel);
}
MIXTAPE_SIMD_KERNEL(rms_norm_forward)
[[maybe_unused]] void rms_norm_forward_bf16_w_f32(const HostCall& call) {
  rms_norm_forward<bf16, float>(call);
}
[[maybe_unused]] void rms_norm_forward_f16_w_f32(const HostCall& call) { rms_norm_forward<f16, float>(call); }

// dx = rstd * (dy*w - x*slope), slope = rstd^2/cols * sum dy*w*x. With kAddsWeight also dw += dy*x*rstd; dw
// has the rows of a block.
template <bool kAddsWeight, class T, class W>
struct RmsNormBackward {
  const T* x;
  const W* w;
  const float* rstd;
  const T* dy;
  T* dx;
  float* dw;
  std::int64_t cols;
  bool accumulate;
  float slope = 0.0f;

  template <class Step>
  HWY_INLINE void add(std::int64_t r, std::size_t c, Step step, RowSum& sum) const {
    const Floats in = step.load(x + r * cols + c), upstream = step.load(dy + r * cols + c);
    sum.add_product(hn::Mul(upstream, step.reload(w + c)), in);
    if constexpr (kAddsWeight)
      step.keep(hn::MulAdd(upstream, hn::Mul(in, set(rstd[r])), step.reload(dw + c)), dw + c);
  }
  HWY_INLINE void settle(std::int64_t r, float sum) {
    slope = sum * rstd[r] / static_cast<float>(cols) * rstd[r];
  }
  template <class Step>
  HWY_INLINE void write(std::int64_t r, std::size_t c, Step step) const {
    T* to = dx + r * cols + c;
    const Floats g = hn::Mul(step.reload(dy + r * cols + c), step.reload(w + c));
    const Floats d = hn::Mul(set(rstd[r]), hn::NegMulAdd(step.reload(x + r * cols + c), set(slope), g));
    step.store(accumulate ? hn::Add(step.load(to), d) : d, to);
  }
};

template <bool kAddsWeight, class T, class W>
void rms_norm_backward_rows(std::int64_t begin, std::int64_t end, bool is_large,
                            const RmsNormBackward<kAddsWeight, T, W>& kernel) {
  const auto cols = static_cast<std::size_t>(kernel.cols);
  if (kernel.dx != nullptr) return for_each_row(begin, end, cols, is_large, kernel);
  for (std::int64_t r = begin; r < end; ++r) sum_row(kernel, r, cols, false);
}

// Writes dx, and per block of rows a partial dw. dx may overwrite dy: a row of it comes after the row's sums.
template <class T, class W = T>
void rms_norm_backward(const HostCall& call) {
  const auto& p = call.params<RmsNormParams>();
  const T* x = call.read<T>(0);
  const W* w = call.read<W>(1);
  const float* rstd = call.read<float>(2);
  const T* dy = call.read<T>(3);
  T* dx = call.write_if<T>(p.wanted, p.dx);
  float* partials = call.write_if<float>(p.wanted, p.dw);
  const bool accumulate = (p.accumulate & p.dx) != 0;
  const bool is_large = dx && !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, p.row_block, [&](std::int64_t begin, std::int64_t end) {
    if (partials == nullptr) {
      const RmsNormBackward<false, T, W> kernel{x, w, rstd, dy, dx, nullptr, p.cols, accumulate};
      return rms_norm_backward_rows(begin, end, is_large, kernel);
    }
    float* partial = partials + begin / p.row_block * p.cols;
    std::fill(partial, partial + p.cols, 0.0f);
    const RmsNormBackward<true, T, W> kernel{x, w, rstd, dy, dx, partial, p.cols, accumulate};
    rms_norm_backward_rows(begin, end, is_large, kernel);
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
               (p.accumulate & p.dw) != 0);
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
