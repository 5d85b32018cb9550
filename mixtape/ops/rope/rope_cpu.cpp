#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/rope/rope_cpu.cpp"
#include <cmath>
#include <vector>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/rope/rope_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// What turns one token's heads. Half-split: one cosine and sine per pair; interleaved: one per dimension, the
// sine with the sign that it is added with.
struct Rotation {
  std::vector<float> cos, sin;
};

inline void set_angles(const RopeParams& p, double position, double sign, const float* inv_freq,
                       Rotation& rotation) {
  for (std::int64_t i = 0; i < p.pairs; ++i) {
    const double angle = position * static_cast<double>(inv_freq[i]);
    const auto cos = static_cast<float>(p.factor * std::cos(angle));
    const auto sin = static_cast<float>(sign * p.factor * std::sin(angle));
    if (p.is_interleaved) {
      rotation.cos[2 * i] = rotation.cos[2 * i + 1] = cos;
      rotation.sin[2 * i] = -sin;
      rotation.sin[2 * i + 1] = sin;
    } else {
      rotation.cos[i] = cos;
      rotation.sin[i] = sin;
    }
  }
}

template <class T>
void rotate_half_split(const T* x, const Rotation& rotation, T* y, std::size_t pairs, bool accumulate,
                       bool is_large) {
  for_each_step(pairs, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats cos = step.load(rotation.cos.data() + i), sin = step.load(rotation.sin.data() + i);
    const Floats a = step.load(x + i), b = step.load(x + pairs + i);
    const Floats first = hn::NegMulAdd(b, sin, hn::Mul(a, cos)), second = hn::MulAdd(a, sin, hn::Mul(b, cos));
    step.store(accumulate ? hn::Add(step.load(y + i), first) : first, y + i);
    step.store(accumulate ? hn::Add(step.load(y + pairs + i), second) : second, y + pairs + i);
  });
}

template <class T>
void rotate_interleaved(const T* x, const Rotation& rotation, T* y, std::size_t dims, bool accumulate,
                        bool is_large) {
  for_each_step(dims, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats cos = step.load(rotation.cos.data() + i), sin = step.load(rotation.sin.data() + i);
    const Floats v = step.load(x + i);
    const Floats turned = hn::MulAdd(hn::Reverse2(kF, v), sin, hn::Mul(v, cos));
    step.store(accumulate ? hn::Add(step.load(y + i), turned) : turned, y + i);
  });
}

template <class T>
void pass_through(const T* x, T* y, std::size_t dims, bool accumulate) {
  for_each_step(dims, false, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(accumulate ? hn::Add(step.load(y + i), step.load(x + i)) : step.load(x + i), y + i);
  });
}

template <class T>
void rotate_token(const RopeParams& p, const T* x, const Rotation& rotation, T* y, bool is_large) {
  const auto pairs = static_cast<std::size_t>(p.pairs);
  const auto rest = static_cast<std::size_t>(p.head_dim) - 2 * pairs;
  const bool accumulate = p.accumulate != 0;
  for (std::int64_t h = 0; h < p.heads; ++h, x += p.head_dim, y += p.head_dim) {
    if (p.is_interleaved) {
      rotate_interleaved(x, rotation, y, 2 * pairs, accumulate, is_large);
    } else {
      rotate_half_split(x, rotation, y, pairs, accumulate, is_large);
    }
    if (x != y || accumulate) pass_through(x + 2 * pairs, y + 2 * pairs, rest, accumulate);
  }
}

// Goes through the sequences side by side: where they share a position, its angles are computed once.
template <class T>
void rotate(const HostCall& call, double sign) {
  const auto& p = call.params<RopeParams>();
  const T* x = call.read<T>(0);
  const auto* positions = call.read<std::uint32_t>(1);
  const float* inv_freq = call.read<float>(2);
  T* y = call.write<T>(0);
  const std::int64_t token = p.heads * p.head_dim;
  const bool is_large = !p.accumulate && x != y && streams(y, 2 * p.batch * p.length * p.heads, p.pairs) &&
                        p.head_dim == 2 * p.pairs;
  cpu::parallel_for(p.length, cpu::row_grain(p.batch * token), [&](std::int64_t begin, std::int64_t end) {
    const auto size = static_cast<std::size_t>(p.is_interleaved ? 2 * p.pairs : p.pairs);
    Rotation rotation{std::vector<float>(size), std::vector<float>(size)};
    for (std::int64_t s = begin; s < end; ++s) {
      for (std::int64_t b = 0; b < p.batch; ++b) {
        const std::uint32_t* row = positions + (p.position_batch == 1 ? 0 : b * p.length);
        const bool is_known = b > 0 && (p.position_batch == 1 || row[s] == row[s - p.length]);
        if (!is_known) set_angles(p, row[s], sign, inv_freq, rotation);
        const std::int64_t at = (b * p.length + s) * token;
        rotate_token(p, x + at, rotation, y + at, is_large);
      }
    }
  });
}

template <class T>
void rope_forward(const HostCall& call) {
  rotate<T>(call, 1.0);
}
MIXTAPE_SIMD_KERNEL(rope_forward)

template <class T>
void rope_backward(const HostCall& call) {
  rotate<T>(call, -1.0);
}
MIXTAPE_SIMD_KERNEL(rope_backward)

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mixtape {
MIXTAPE_REGISTER_SIMD_KERNEL(rope_forward)
MIXTAPE_REGISTER_SIMD_KERNEL(rope_backward)
}  // namespace mixtape
#endif
