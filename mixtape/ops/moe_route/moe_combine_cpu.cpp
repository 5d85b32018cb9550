#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/moe_route/moe_combine_cpu.cpp"
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/moe_route/moe_route_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T>
void combine_row(const std::vector<const T*>& x, const float* weights, const T* addend, T* y,
                 std::size_t cols) {
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    Floats sum = zero();
    for (std::size_t j = 0; j < x.size(); ++j) {
      if (x[j] != nullptr) sum = hn::MulAdd(set(weights[j]), load(x[j] + c, n), sum);
    }
    store(addend != nullptr ? hn::Add(sum, load(addend + c, n)) : sum, y + c, n);
  }
}

template <class T>
void moe_combine_forward(const HostCall& call) {
  const auto& p = call.params<MoeCombineParams>();
  const T* x = call.read<T>(0);
  const float* weights = call.read<float>(1);
  const auto* inverse = call.read<std::uint32_t>(2);
  const T* addend = p.has_addend != 0 ? call.read<T>(3) : nullptr;
  T* y = call.write<T>(0);
  const std::int64_t slots = p.tokens * p.k;
  cpu::parallel_for(p.tokens, cpu::row_grain(p.k * p.cols), [&](std::int64_t begin, std::int64_t end) {
    std::vector<const T*> rows(static_cast<std::size_t>(p.k));
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t j = 0; j < p.k; ++j) {
        const std::int64_t place = inverse[t * p.k + j];
        rows[j] = place < slots ? x + place * p.cols : nullptr;
        if (place >= slots) call.report_index(t * p.k + j, place, slots);
      }
      combine_row(rows, weights + t * p.k, addend != nullptr ? addend + t * p.cols : nullptr, y + t * p.cols,
                  static_cast<std::size_t>(p.cols));
    }
  });
}
MIXTAPE_SIMD_KERNEL(moe_combine_forward)

template <class T>
void scale_row(const T* dy, float weight, T* dx, std::size_t cols, bool accumulate) {
  const Floats w = set(weight);
  for (std::size_t c = 0; c < cols; c += lanes()) {
    const std::size_t n = cols - c;
    const Floats d = hn::Mul(load(dy + c, n), w);
    store(accumulate ? hn::Add(load(dx + c, n), d) : d, dx + c, n);
  }
}

template <class T>
float dot(const T* a, const T* b, std::size_t cols) {
  Floats s0 = zero(), s1 = zero();
  const std::size_t step = lanes();
  std::size_t c = 0;
  for (; c + 2 * step <= cols; c += 2 * step) {
    s0 = hn::MulAdd(load(a + c), load(b + c), s0);
    s1 = hn::MulAdd(load(a + c + step), load(b + c + step), s1);
  }
  for (; c < cols; c += step) s0 = hn::MulAdd(load(a + c, cols - c), load(b + c, cols - c), s0);
  return sum_lanes(hn::Add(s0, s1));
}

// Goes by token, so that dy is read once: its k rows belong to no other token.
template <class T>
void moe_combine_backward(const HostCall& call) {
  const auto& p = call.params<MoeCombineParams>();
  const T* x = call.read<T>(0);
  const float* weights = call.read<float>(1);
  const auto* inverse = call.read<std::uint32_t>(2);
  const T* dy = call.read<T>(3);
  T* dx = call.write_if<T>(p.wanted, p.dx);
  float* dweights = call.write_if<float>(p.wanted, p.dweights);
  const std::int64_t slots = p.tokens * p.k;
  const auto cols = static_cast<std::size_t>(p.cols);
  cpu::parallel_for(p.tokens, cpu::row_grain(p.k * p.cols), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t s = begin * p.k; s < end * p.k; ++s) {
      const T* upstream = dy + s / p.k * p.cols;
      const std::int64_t place = inverse[s];
      const bool is_inside = place < slots;
      if (!is_inside) call.report_index(s, place, slots);
      if (dweights != nullptr) {
        const float d = is_inside ? dot(x + place * p.cols, upstream, cols) : 0.0f;
        dweights[s] = (p.accumulate & p.dweights) != 0 ? dweights[s] + d : d;
      }
      if (dx != nullptr && is_inside) {
        scale_row(upstream, weights[s], dx + place * p.cols, cols, (p.accumulate & p.dx) != 0);
      }
    }
  });
}
MIXTAPE_SIMD_KERNEL(moe_combine_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(moe_combine_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(moe_combine_backward)
}  // namespace mixtape
#endif
