#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/rms_norm/rms_norm_cpu.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
float sum_of_squares(const T* x, std::size_t cols) {
  Floats s0 = zero(), s1 = zero(), s2 = zero(), s3 = zero();
  const std::size_t step = lanes();
  std::size_t c = 0;
  for (; c + 4 * step <= cols; c += 4 * step) {
    const Floats x0 = load(x + c), x1 = load(x + c + step);
    const Floats x2 = load(x + c + 2 * step), x3 = load(x + c + 3 * step);
    s0 = hn::MulAdd(x0, x0, s0);
    s1 = hn::MulAdd(x1, x1, s1);
    s2 = hn::MulAdd(x2, x2, s2);
    s3 = hn::MulAdd(x3, x3, s3);
  }
  for (; c < cols; c += step) {
    const Floats v = load(x + c, cols - c);
    s0 = hn::MulAdd(v, v, s0);
  }
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

template <class T, class W>
void rms_norm_row(const T* x, const W* w, float rstd, T* y, std::size_t cols) {
  const Floats r = set(rstd);
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    store(hn::Mul(hn::Mul(load(x + c, n), r), load(w + c, n)), y + c, n);
  }
}

template <class T, class W = T>
void rms_norm_forward(const HostCall& call) {
  const auto& p = call.params<RmsNormParams>();
  const T* x = call.read<T>(0);
  const W* w = call.read<W>(1);
  T* y = call.write<T>(0);
  float* rstd = call.write<float>(1);
  const auto cols = static_cast<std::size_t>(p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float mean = sum_of_squares(x + r * p.cols, cols) / static_cast<float>(p.cols);
      rstd[r] = 1.0f / std::sqrt(mean + p.eps);
      rms_norm_row(x + r * p.cols, w, rstd[r], y + r * p.cols, cols);
    }
  });
}
MIXTAPE_SIMD_KERNEL(rms_norm_forward)
[[maybe_unused]] void rms_norm_forward_bf16_w_f32(const HostCall& call) {
  rms_norm_forward<bf16, float>(call);
}
[[maybe_unused]] void rms_norm_forward_f16_w_f32(const HostCall& call) { rms_norm_forward<f16, float>(call); }

template <class T, class W>
float weighted_dot(const T* dy, const W* w, const T* x, std::size_t cols) {
  Floats s0 = zero(), s1 = zero();
  const std::size_t step = lanes();
  std::size_t c = 0;
  for (; c + 2 * step <= cols; c += 2 * step) {
    s0 = hn::MulAdd(hn::Mul(load(dy + c), load(w + c)), load(x + c), s0);
    s1 = hn::MulAdd(hn::Mul(load(dy + c + step), load(w + c + step)), load(x + c + step), s1);
  }
  for (; c < cols; c += step) {
    const std::size_t n = cols - c;
    s0 = hn::MulAdd(hn::Mul(load(dy + c, n), load(w + c, n)), load(x + c, n), s0);
  }
  return sum_lanes(hn::Add(s0, s1));
}

// dx = rstd * (dy*w - x*slope), slope = rstd^2/cols * sum dy*w*x
template <class T, class W>
void rms_norm_backward_row(const T* x, const W* w, float rstd, float slope, const T* dy, T* dx,
                           std::size_t cols, bool accumulate) {
  const Floats r = set(rstd), k = set(slope);
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats g = hn::Mul(load(dy + c, n), load(w + c, n));
    const Floats d = hn::Mul(r, hn::NegMulAdd(load(x + c, n), k, g));
    store(accumulate ? hn::Add(load(dx + c, n), d) : d, dx + c, n);
  }
}

template <class T>
void add_weight_gradient(const T* x, float rstd, const T* dy, float* dw, std::size_t cols) {
  const Floats r = set(rstd);
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats normed = hn::Mul(load(x + c, n), r);
    store(hn::MulAdd(load(dy + c, n), normed, load(dw + c, n)), dw + c, n);
  }
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
  cpu::parallel_for(p.rows, p.row_block, [&](std::int64_t begin, std::int64_t end) {
    float* partial = partials + begin / p.row_block * p.cols;
    if (p.wants_dw) std::fill(partial, partial + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      if (p.wants_dw) add_weight_gradient(x + at, rstd[r], dy + at, partial, cols);
      if (!p.wants_dx) continue;
      const float dot = weighted_dot(dy + at, w, x + at, cols);
      const float slope = dot * rstd[r] / static_cast<float>(p.cols) * rstd[r];
      rms_norm_backward_row(x + at, w, rstd[r], slope, dy + at, dx + at, cols, p.accumulate_dx != 0);
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
