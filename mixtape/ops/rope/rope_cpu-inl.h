// The rotation of one head, for kernels that turn what they have just read or made.

#if defined(MIXTAPE_OPS_ROPE_ROPE_CPU_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_OPS_ROPE_ROPE_CPU_INL_H_
#undef MIXTAPE_OPS_ROPE_ROPE_CPU_INL_H_
#else
#define MIXTAPE_OPS_ROPE_ROPE_CPU_INL_H_
#endif

#include <cmath>
#include <vector>

#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/rope/rope_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// What turns one token's heads. Half-split: one cosine and sine per pair; interleaved: one per dimension, the
// sine with the sign that it is added with.
struct Rotation {
  explicit Rotation(const RopeParams& p)
      : cos(static_cast<std::size_t>(p.is_interleaved ? 2 * p.pairs : p.pairs)), sin(cos.size()) {}
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

template <class In, class Out>
void rotate_half_split(const In* x, const Rotation& rotation, Out* y, std::size_t pairs, bool accumulate,
                       bool is_large) {
  for_each_step(pairs, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats cos = step.load(rotation.cos.data() + i), sin = step.load(rotation.sin.data() + i);
    const Floats a = step.load(x + i), b = step.load(x + pairs + i);
    const Floats first = hn::NegMulAdd(b, sin, hn::Mul(a, cos)), second = hn::MulAdd(a, sin, hn::Mul(b, cos));
    step.store(accumulate ? hn::Add(step.load(y + i), first) : first, y + i);
    step.store(accumulate ? hn::Add(step.load(y + pairs + i), second) : second, y + pairs + i);
  });
}

template <class In, class Out>
void rotate_interleaved(const In* x, const Rotation& rotation, Out* y, std::size_t dims, bool accumulate,
                        bool is_large) {
  for_each_step(dims, is_large, [&](std::size_t i, auto step) HWY_ATTR {
    const Floats cos = step.load(rotation.cos.data() + i), sin = step.load(rotation.sin.data() + i);
    const Floats v = step.load(x + i);
    const Floats turned = hn::MulAdd(hn::Reverse2(kF, v), sin, hn::Mul(v, cos));
    step.store(accumulate ? hn::Add(step.load(y + i), turned) : turned, y + i);
  });
}

template <class In, class Out>
void pass_through(const In* x, Out* y, std::size_t dims, bool accumulate) {
  for_each_step(dims, false, [&](std::size_t i, auto step) HWY_ATTR {
    step.store(accumulate ? hn::Add(step.load(y + i), step.load(x + i)) : step.load(x + i), y + i);
  });
}

// y may be x.
template <class In, class Out>
void rotate_head(const RopeParams& p, const In* x, const Rotation& rotation, Out* y, bool is_large) {
  const auto pairs = static_cast<std::size_t>(p.pairs);
  const auto rest = static_cast<std::size_t>(p.head_dim) - 2 * pairs;
  const bool accumulate = p.accumulate != 0;
  if (p.is_interleaved) {
    rotate_interleaved(x, rotation, y, 2 * pairs, accumulate, is_large);
  } else {
    rotate_half_split(x, rotation, y, pairs, accumulate, is_large);
  }
  if (static_cast<const void*>(x) != y || accumulate)
    pass_through(x + 2 * pairs, y + 2 * pairs, rest, accumulate);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
