#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/norm_rope/norm_rope_cpu.cpp"
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/ops/norm_rope/norm_rope_params.h"
#include "mixtape/ops/rope/rope_cpu-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// Tokens [begin, end), counted from position to position, the sequences side by side: where they share a position, its
// angles are computed once. `on_token` gets the token's number in x, and its rotation.
template <class OnToken>
void for_each_turned_token(const RopeParams& p, const std::uint32_t* positions, const float* inv_freq,
                           double sign, std::int64_t begin, std::int64_t end, const OnToken& on_token) {
  Rotation rotation(p);
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t s = i / p.batch, b = i % p.batch, row = p.position_batch == 1 ? 0 : b * p.length;
    const bool is_known =
        i > begin && b > 0 && (row == 0 || positions[row + s] == positions[row + s - p.length]);
    if (!is_known) set_angles(p, positions[row + s], sign, inv_freq, rotation);
    on_token(b * p.length + s, rotation);
  }
}

// n = x * rstd * w; returns rstd.
template <class T, class W>
float norm_head(const T* x, const W* w, float eps, float* n, std::size_t dims) {
  Floats sum = zero();
  for_each_step(dims, false, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats in = step.load(x + c);
    sum = hn::MulAdd(in, in, sum);
  });
  const float rstd = 1.0f / std::sqrt(sum_lanes(sum) / static_cast<float>(dims) + eps);
  for_each_step(dims, false, [&](std::size_t c, auto step) HWY_ATTR {
    step.store(hn::Mul(hn::Mul(step.load(x + c), set(rstd)), step.load(w + c)), n + c);
  });
  return rstd;
}

template <class T, class W = T>
void norm_rope_forward(const HostCall& call) {
  const auto& p = call.params<NormRopeParams>();
  const T* x = call.read<T>(0);
  const W* w = call.read<W>(1);
  const auto* positions = call.read<std::uint32_t>(2);
  const float* inv_freq = call.read<float>(3);
  T* y = call.write<T>(0);
  float* rstd = call.write<float>(1);
  const auto dims = static_cast<std::size_t>(p.rope.head_dim);
  const std::int64_t heads = p.rope.heads, grain = cpu::row_grain(heads * p.rope.head_dim);
  cpu::parallel_for(p.norm.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    static thread_local cpu::Scratch scratch;
    float* n = scratch.get<float>(dims);
    for_each_turned_token(p.rope, positions, inv_freq, 1.0, begin, end,
                          [&](std::int64_t token, const Rotation& rotation) {
                            for (std::int64_t h = token * heads; h < (token + 1) * heads; ++h) {
                              const std::int64_t at = h * p.rope.head_dim;
                              rstd[h] = norm_head(x + at, w, p.norm.eps, n, dims);
                              rotate_head(p.rope, n, rotation, y + at, false);
                            }
                          });
  });
}
MIXTAPE_SIMD_KERNEL(norm_rope_forward)
[[maybe_unused]] void norm_rope_forward_bf16_w_f32(const HostCall& call) {
  norm_rope_forward<bf16, float>(call);
}
[[maybe_unused]] void norm_rope_forward_f16_w_f32(const HostCall& call) {
  norm_rope_forward<f16, float>(call);
}

// sum g*w*x of a head; g*x*rstd is added to dw, which may be null.
template <class T, class W>
float add_head(const T* x, const W* w, float rstd, const float* g, float* dw, std::size_t dims) {
  Floats dot = zero();
  for_each_step(dims, false, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats in = step.load(x + c), upstream = step.load(g + c);
    dot = hn::MulAdd(hn::Mul(upstream, step.load(w + c)), in, dot);
    if (dw != nullptr) step.keep(hn::MulAdd(upstream, hn::Mul(in, set(rstd)), step.load(dw + c)), dw + c);
  });
  return sum_lanes(dot);
}

// dx = rstd * (g*w - x*slope), slope = rstd^2/cols * sum g*w*x
template <class T, class W>
void put_head(const T* x, const W* w, float rstd, float slope, const float* g, T* dx, std::size_t dims,
              bool accumulate) {
  for_each_step(dims, false, [&](std::size_t c, auto step) HWY_ATTR {
    const Floats scaled = hn::Mul(step.load(g + c), step.load(w + c));
    const Floats d = hn::Mul(set(rstd), hn::NegMulAdd(step.load(x + c), set(slope), scaled));
    step.store(accumulate ? hn::Add(step.load(dx + c), d) : d, dx + c);
  });
}

// Writes dx, and per block of tokens a partial dw. dx may overwrite dy: a head of it comes after the head's sum.
template <class T, class W = T>
void norm_rope_backward(const HostCall& call) {
  const auto& p = call.params<NormRopeParams>();
  const T *x = call.read<T>(0), *dy = call.read<T>(5);
  const W* w = call.read<W>(1);
  const auto* positions = call.read<std::uint32_t>(2);
  const float *inv_freq = call.read<float>(3), *rstd = call.read<float>(4);
  T* dx = call.write_if<T>(p.wanted, p.dx);
  float* partials = call.write_if<float>(p.wanted, p.dw);
  const auto dims = static_cast<std::size_t>(p.rope.head_dim);
  const std::int64_t heads = p.rope.heads;
  cpu::parallel_for(p.norm.rows, p.norm.row_block, [&](std::int64_t begin, std::int64_t end) {
    static thread_local cpu::Scratch scratch;
    float* g = scratch.get<float>(dims);
    float* partial = partials ? partials + begin / p.norm.row_block * p.rope.head_dim : nullptr;
    if (partial) std::fill(partial, partial + dims, 0.0f);
    for_each_turned_token(
        p.rope, positions, inv_freq, -1.0, begin, end, [&](std::int64_t token, const Rotation& rotation) {
          for (std::int64_t h = token * heads; h < (token + 1) * heads; ++h) {
            const std::int64_t at = h * p.rope.head_dim;
            rotate_head(p.rope, dy + at, rotation, g, false);
            const float dot = add_head(x + at, w, rstd[h], g, partial, dims);
            const float slope = dot * rstd[h] / static_cast<float>(p.rope.head_dim) * rstd[h];
            if (dx) put_head(x + at, w, rstd[h], slope, g, dx + at, dims, (p.accumulate & p.dx) != 0);
          }
        });
  });
}
MIXTAPE_SIMD_KERNEL(norm_rope_backward)
[[maybe_unused]] void norm_rope_backward_bf16_w_f32(const HostCall& call) {
  norm_rope_backward<bf16, float>(call);
}
[[maybe_unused]] void norm_rope_backward_f16_w_f32(const HostCall& call) {
  norm_rope_backward<f16, float>(call);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(norm_rope_forward)
MIXTAPE_REGISTER_SIMD_ONE(norm_rope_forward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(norm_rope_forward_f16_w_f32)
MIXTAPE_REGISTER_SIMD_KERNEL(norm_rope_backward)
MIXTAPE_REGISTER_SIMD_ONE(norm_rope_backward_bf16_w_f32)
MIXTAPE_REGISTER_SIMD_ONE(norm_rope_backward_f16_w_f32)
}  // namespace mixtape
#endif
