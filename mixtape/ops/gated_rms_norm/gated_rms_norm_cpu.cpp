#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/gated_rms_norm/gated_rms_norm_cpu.cpp"
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/rows-inl.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/ops/gated_rms_norm/gated_rms_norm_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T, class W>
struct GatedRmsNormForward {
  const T *x, *z;
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
    const Floats gate = step.load(z + r * cols + c);
    const Floats normed = hn::Mul(step.reload(x + r * cols + c), set(scale));
    step.store(hn::Mul(hn::Mul(normed, step.reload(w + c)), silu(gate)), y + r * cols + c);
  }
};

template <class T, class W = T>
void gated_rms_norm_forward(const HostCall& call) {
  const RmsNormParams& p = call.params<GatedRmsNormParams>().norm;
  const T *x = call.read<T>(0), *z = call.read<T>(1);
  const W* w = call.read<W>(2);
  T* y = call.write<T>(0);
  float* rstd = call.write<float>(1);
  const bool is_large = streams(y, p.rows, p.cols);
  const GatedRmsNormForward<T, W> kernel{x, z, w, y, rstd, p.cols, p.eps};
  parallel_rows(p.rows, is_large, kernel);
}
MIXTAPE_SIMD_KERNEL(gated_rms_norm_forward)
[[maybe_unused]] void gated_rms_norm_forward_bf16_w_f32(const HostCall& call) {
  gated_rms_norm_forward<bf16, float>(call);
}
[[maybe_unused]] void gated_rms_norm_forward_f16_w_f32(const HostCall& call) {
  gated_rms_norm_forward<f16, float>(call);
}

// One row's g = dy*silu(z), dz, and share of dw; returns sum g*w*x. dz and dw may be null.
template <class T, class W>
float gate_row(const T* x, const T* z, const W* w, float rstd, const T* dy, float* g, T* dz,
               bool accumulate_dz, float* dw, std::size_t cols) {
  const Floats r = set(rstd);
  Floats dot = zero();
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats gate = load(z + c, n), upstream = load(dy + c, n), weight = load(w + c, n);
    const Floats in = load(x + c, n), normed = hn::Mul(in, r);
    const Sigmoids s = sigmoids(gate);
    const Floats own = hn::Mul(upstream, silu(gate, s));
    store(own, g + c, n);
    dot = hn::MulAdd(hn::Mul(own, weight), in, dot);
    if (dw != nullptr) store(hn::MulAdd(own, normed, load(dw + c, n)), dw + c, n);
    if (dz == nullptr) continue;
    const Floats d = hn::Mul(hn::Mul(upstream, hn::Mul(normed, weight)), silu_slope(gate, s));
    store(accumulate_dz ? hn::Add(load(dz + c, n), d) : d, dz + c, n);
  }
  return sum_lanes(dot);
}

// dx = rstd * (g*w - x*slope), slope = rstd^2/cols * sum g*w*x
template <class T, class W>
void backward_row(const T* x, const W* w, float rstd, float slope, const float* g, T* dx, std::size_t cols,
                  bool accumulate, bool is_large) {
  const Floats r = set(rstd), k = set(slope);
  for_each_step(cols, is_large, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats scaled = hn::Mul(step.load(g + c), step.load(w + c));
    const Floats d = hn::Mul(r, hn::NegMulAdd(step.load(x + c), k, scaled));
    step.store(accumulate ? hn::Add(step.load(dx + c), d) : d, dx + c);
  });
}

// Writes dx and dz, and per block of rows a partial dw.
template <class T, class W = T>
void gated_rms_norm_backward(const HostCall& call) {
  const auto& params = call.params<GatedRmsNormParams>();
  const RmsNormParams& p = params.norm;
  const T *x = call.read<T>(0), *z = call.read<T>(1), *dy = call.read<T>(4);
  const W* w = call.read<W>(2);
  const float* rstd = call.read<float>(3);
  T* dx = call.write_if<T>(params.wanted, params.dx);
  T* dz = call.write_if<T>(params.wanted, params.dz);
  float* partials = call.write_if<float>(params.wanted, params.dw);
  const auto cols = static_cast<std::size_t>(p.cols);
  const bool accumulate = (params.accumulate & params.dx) != 0;
  const bool is_large = dx && !accumulate && streams(dx, p.rows, p.cols);
  cpu::parallel_for(p.rows, p.row_block, [&](std::int64_t begin, std::int64_t end) {
    static thread_local cpu::Scratch scratch;
    float* g = scratch.get<float>(cols);
    float* partial = partials ? partials + begin / p.row_block * p.cols : nullptr;
    if (partial) std::fill(partial, partial + cols, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t at = r * p.cols;
      const float dot = gate_row(x + at, z + at, w, rstd[r], dy + at, g, dz ? dz + at : nullptr,
                                 (params.accumulate & params.dz) != 0, partial, cols);
      if (dx == nullptr) continue;
      const float slope = dot * rstd[r] / static_cast<float>(p.cols) * rstd[r];
      backward_row(x + at, w, rstd[r], slope, g, dx + at, cols, accumulate, is_large);
    }
  });
}
MIXTAPE_SIMD_KERNEL(gated_rms_norm_backward)
[[maybe_unused]] void gated_rms_norm_backward_bf16_w_f32(const HostCall& call) {
  gated_rms_norm_backward<bf16, float>(call);
}
[[maybe_unused]] void gated_rms_norm_backward_f16_w_f32(const HostCall& call) {
  gated_rms_norm_backward<f16, float>(call);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(gated_rms_norm_forward)
MIXTAPE_REGISTER_SIMD_ONE(gated_rms_norm_forward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(gated_rms_norm_forward_f16_w_f32)
MIXTAPE_REGISTER_SIMD_KERNEL(gated_rms_norm_backward)
MIXTAPE_REGISTER_SIMD_ONE(gated_rms_norm_backward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(gated_rms_norm_backward_f16_w_f32)
}  // namespace mixtape
#endif
