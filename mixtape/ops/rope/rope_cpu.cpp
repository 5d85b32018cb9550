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
HWY_INLINE void put(Floats v, T* y, std::size_t n, bool accumulate) {
  store(accumulate ? hn::Add(load(y, n), v) : v, y, n);
}

template <class T>
void rotate_half_split(const T* x, const Rotation& rotation, T* y, std::size_t pairs, bool accumulate) {
  for (std::size_t i = 0; i < pairs; i += lanes()) {
    const std::size_t n = pairs - i;
    const Floats cos = load(rotation.cos.data() + i, n), sin = load(rotation.sin.data() + i, n);
    const Floats a = load(x + i, n), b = load(x + pairs + i, n);
    put(hn::NegMulAdd(b, sin, hn::Mul(a, cos)), y + i, n, accumulate);
    put(hn::MulAdd(a, sin, hn::Mul(b, cos)), y + pairs + i, n, accumulate);
  }
}

template <class T>
void rotate_interleaved(const T* x, const Rotation& rotation, T* y, std::size_t dims, bool accumulate) {
  for (std::size_t i = 0; i < dims; i += lanes()) {
    const std::size_t n = dims - i;
    const Floats cos = load(rotation.cos.data() + i, n), sin = load(rotation.sin.data() + i, n);
    const Floats v = load(x + i, n);
    put(hn::MulAdd(hn::Reverse2(kF, v), sin, hn::Mul(v, cos)), y + i, n, accumulate);
  }
}

template <class T>
void pass_through(const T* x, T* y, std::size_t dims, bool accumulate) {
  for (std::size_t i = 0; i < dims; i += lanes()) put(load(x + i, dims - i), y + i, dims - i, accumulate);
}

template <class T>
void rotate_token(const RopeParams& p, const T* x, const Rotation& rotation, T* y) {
  const auto pairs = static_cast<std::size_t>(p.pairs);
  const auto rest = static_cast<std::size_t>(p.head_dim) - 2 * pairs;
  const bool accumulate = p.accumulate != 0;
  for (std::int64_t h = 0; h < p.heads; ++h, x += p.head_dim, y += p.head_dim) {
    if (p.is_interleaved) {
      rotate_interleaved(x, rotation, y, 2 * pairs, accumulate);
    } else {
      rotate_half_split(x, rotation, y, pairs, accumulate);
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
  cpu::parallel_for(p.length, cpu::row_grain(p.batch * token), [&](std::int64_t begin, std::int64_t end) {
    const auto size = static_cast<std::size_t>(p.is_interleaved ? 2 * p.pairs : p.pairs);
    Rotation rotation{std::vector<float>(size), std::vector<float>(size)};
    for (std::int64_t s = begin; s < end; ++s) {
      for (std::int64_t b = 0; b < p.batch; ++b) {
        const std::uint32_t* row = positions + (p.position_batch == 1 ? 0 : b * p.length);
        const bool is_known = b > 0 && (p.position_batch == 1 || row[s] == row[s - p.length]);
        if (!is_known) set_angles(p, row[s], sign, inv_freq, rotation);
        const std::int64_t at = (b * p.length + s) * token;
        rotate_token(p, x + at, rotation, y + at);
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
