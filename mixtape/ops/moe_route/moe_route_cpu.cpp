#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/moe_route/moe_route_cpu.cpp"
#include <cmath>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/moe_route/moe_route_params.h"
#include "mixtape/ops/top_k/top_k_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
float sum_of_exp(const T* x, float max, std::size_t cols) {
  const Floats m = set(max);
  Floats sums = zero();
  for (std::size_t c = 0; c < cols; c += lanes()) {
    sums = hn::Add(sums, keep_first(exp(hn::Sub(load(x + c, cols - c), m)), cols - c, zero()));
  }
  return sum_lanes(sums);
}

// shifted[t,j] = the chosen logits less the row's largest, which the first index names; or a NaN, which then
// fills the row.
template <class T>
void shift_rows(const T* x, const std::uint32_t* indices, std::int64_t tokens, const MoeRouteParams& p,
                float* shifted) {
  for (std::int64_t t = 0; t < tokens; ++t, x += p.experts, indices += p.k, shifted += p.k) {
    const auto max = static_cast<float>(x[indices[0]]);
    for (std::int64_t j = 0; j < p.k; ++j) shifted[j] = static_cast<float>(x[indices[j]]) - max;
  }
}

void exp_in_place(float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(exp(load(x + i, n - i)), x + i, n - i);
}

// With `normalise` the weights are the softmax over the chosen logits alone.
template <class T>
void route_rows(const T* x, const std::uint32_t* indices, std::int64_t tokens, const MoeRouteParams& p,
                float* weights) {
  shift_rows(x, indices, tokens, p, weights);
  exp_in_place(weights, static_cast<std::size_t>(tokens * p.k));
  for (std::int64_t t = 0; t < tokens; ++t, x += p.experts, indices += p.k, weights += p.k) {
    float sum = 0.0f;
    if (p.normalise) {
      for (std::int64_t j = 0; j < p.k; ++j) sum += weights[j];
    } else {
      sum = sum_of_exp(x, static_cast<float>(x[indices[0]]), static_cast<std::size_t>(p.experts));
    }
    for (std::int64_t j = 0; j < p.k; ++j) weights[j] /= sum;
  }
}

template <class T>
void moe_route_forward(const HostCall& call) {
  const auto& p = call.params<MoeRouteParams>();
  const T* x = call.read<T>(0);
  float* weights = call.write<float>(0);
  auto* indices = call.write<std::uint32_t>(1);
  cpu::parallel_for(p.tokens, cpu::row_grain(p.experts), [&](std::int64_t begin, std::int64_t end) {
    const T* rows = x + begin * p.experts;
    cpu::top_k_rows(rows, end - begin, p.experts, p.k, indices + begin * p.k);
    route_rows(rows, indices + begin * p.k, end - begin, p, weights + begin * p.k);
  });
}
MIXTAPE_SIMD_KERNEL(moe_route_forward)

// d = -dot * softmax(x)
template <class T>
void scaled_softmax(const T* x, float max, float dot, float* d, std::size_t cols) {
  const Floats m = set(max), factor = set(-dot / sum_of_exp(x, max, cols));
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    store(hn::Mul(exp(hn::Sub(load(x + c, n), m)), factor), d + c, n);
  }
}

template <class T>
void put_row(const float* d, T* out, std::size_t cols, bool accumulate) {
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    store(accumulate ? hn::Add(load(out + c, n), load(d + c, n)) : load(d + c, n), out + c, n);
  }
}

template <class T>
void moe_route_backward(const HostCall& call) {
  const auto& p = call.params<MoeRouteParams>();
  const T* x = call.read<T>(0);
  const float* weights = call.read<float>(1);
  const auto* indices = call.read<std::uint32_t>(2);
  const float* dweights = call.read<float>(3);
  T* dx = call.write<T>(0);
  const auto cols = static_cast<std::size_t>(p.experts);
  cpu::parallel_for(p.tokens, cpu::row_grain(p.experts), [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> d(cols);
    for (std::int64_t t = begin; t < end; ++t) {
      const std::int64_t row = t * p.experts, first = t * p.k;
      float dot = 0.0f;
      for (std::int64_t s = first; s < first + p.k; ++s) dot += dweights[s] * weights[s];
      if (p.normalise || indices[first] >= p.experts) {
        std::fill(d.begin(), d.end(), 0.0f);
      } else {
        scaled_softmax(x + row, static_cast<float>(x[row + indices[first]]), dot, d.data(), cols);
      }
      for (std::int64_t s = first; s < first + p.k; ++s) {
        if (indices[s] < p.experts) {
          d[indices[s]] = weights[s] * (dweights[s] - dot);
        } else {
          call.report_index(s, indices[s], p.experts);
        }
      }
      put_row(d.data(), dx + row, cols, p.accumulate != 0);
    }
  });
}
MIXTAPE_SIMD_KERNEL(moe_route_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(moe_route_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(moe_route_backward)

namespace {

// A counting sort by expert; expert E stands for every number out of range.
void moe_plan(const HostCall& call) {
  const auto& p = call.params<MoePlanParams>();
  const auto* indices = call.read<std::uint32_t>(0);
  auto* order = call.write<std::uint32_t>(0);
  auto* rows = call.write<std::uint32_t>(1);
  auto* inverse = call.write<std::uint32_t>(2);
  auto* offsets = call.write<std::uint32_t>(3);
  auto* experts = call.write<std::uint32_t>(4);
  const auto expert_of = [&](std::int64_t s) { return std::min<std::int64_t>(indices[s], p.experts); };
  std::vector<std::uint32_t> next(static_cast<std::size_t>(p.experts) + 2);
  for (std::int64_t s = 0; s < p.slots; ++s) ++next[expert_of(s) + 1];
  for (std::int64_t e = 0; e <= p.experts; ++e) next[e + 1] += next[e];
  std::copy(next.begin(), next.end() - 1, offsets);
  for (std::int64_t s = 0; s < p.slots; ++s) {
    const std::int64_t e = expert_of(s);
    if (e == p.experts) call.report_index(s, indices[s], p.experts);
    const std::uint32_t place = next[e]++;
    order[place] = static_cast<std::uint32_t>(s);
    rows[place] = static_cast<std::uint32_t>(s / p.k);
    inverse[s] = place;
    experts[place] = indices[s];
  }
}
MIXTAPE_HOST_KERNEL("moe_plan", moe_plan);

}  // namespace
}  // namespace mixtape
#endif
