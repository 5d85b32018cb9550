#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/rope/turn_gpu.h"

namespace mixtape {

// 1 / (2 pi), the 128 bits after the point, highest first.
MIXTAPE_DEVICE std::uint32_t turn_bits(int word) {
  return word == 0 ? 0x28be60dbu : word == 1 ? 0x9391054au : word == 2 ? 0x7f09d5f4u : 0x7d4d3770u;
}

// position * inv_freq / (2 pi) modulo 1, in units of 2^-64: exact to the last unit for |inv_freq| < 2^24 (the
// angle itself would need far more bits than f32 has).
MIXTAPE_DEVICE std::uint64_t turns(std::uint32_t position, float inv_freq) {
  const std::uint32_t bits = bits_of(inv_freq);
  const std::uint32_t exponent = (bits >> 23) & 0xffu;
  const std::uint32_t mantissa = exponent == 0 ? bits & 0x7fffffu : (bits & 0x7fffffu) | 0x800000u;
  const int shift = static_cast<int>(exponent == 0 ? 1u : exponent) - 150;  // inv_freq = mantissa * 2^shift
  const std::uint64_t product = static_cast<std::uint64_t>(position) * mantissa;
  const std::uint64_t low = product & 0xffffffffu, high = product >> 32;
  // product / (2 pi) in words of 32 bits: words[5] holds the last bits after the point, words[0], words[1]
  // stand before it.
  std::uint32_t words[6];
  std::uint64_t carry = 0;
  MIXTAPE_UNROLL
  for (int w = 5; w >= 0; --w) {
    std::uint64_t sum = carry & 0xffffffffu, next = carry >> 32;
    if (w >= 2) {
      const std::uint64_t part = low * turn_bits(w - 2);
      sum += part & 0xffffffffu;
      next += part >> 32;
    }
    if (w >= 1 && w <= 4) {
      const std::uint64_t part = high * turn_bits(w - 1);
      sum += part & 0xffffffffu;
      next += part >> 32;
    }
    words[w] = static_cast<std::uint32_t>(sum);
    carry = next + (sum >> 32);
  }
  // The 64 bits that start `skip` bits after the top of words[0].
  const int skip = 64 + shift;
  std::uint64_t result = 0;
  MIXTAPE_UNROLL
  for (int w = 0; w < 6; ++w) {
    const int left = 32 - (32 * w - skip);  // how far word w is moved up in the result
    if (left >= 0 && left < 64) result |= static_cast<std::uint64_t>(words[w]) << left;
    if (left < 0 && left > -32) result |= static_cast<std::uint64_t>(words[w]) >> -left;
  }
  return (bits >> 31) != 0 ? ~result + 1 : result;
}

// Cosine and sine of a part of a turn: the nearest quarter is taken off, the rest is within pi/4.
MIXTAPE_DEVICE void cos_sin(std::uint64_t turns, float& cos, float& sin) {
  const std::uint64_t quarter = (turns + (1ull << 61)) >> 62;
  const std::int64_t rest = static_cast<std::int64_t>(turns - (quarter << 62));
  const float a = static_cast<float>(rest) * 3.40612158e-19f;  // 2 pi / 2^64
  const float z = a * a;
  float s = fma_f32(-1.9515295891e-4f, z, 8.3321608736e-3f);
  s = fma_f32(s, z, -1.6666654611e-1f);
  s = fma_f32(s * z, a, a);
  float c = fma_f32(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  c = fma_f32(c, z, 4.166664568298827e-2f);
  c = fma_f32(c * z, z, fma_f32(-0.5f, z, 1.0f));
  const bool is_odd = (quarter & 1u) != 0;
  const float x = is_odd ? s : c, y = is_odd ? c : s;
  cos = ((quarter + 1) & 2u) != 0 ? -x : x;
  sin = (quarter & 2u) != 0 ? -y : y;
}

// Factor times cosine and sine for every position and pair.
MIXTAPE_KERNEL(rope_angles, 256, RopeAnglesParams p, Global<const std::uint32_t> positions,
               Global<const float> inv_freq, Global<float> cos, Global<float> sin) {
  await_earlier();
  const std::int64_t count = p.positions * p.pairs, i = global_thread();
  if (i >= count) return;
  const std::int64_t token = quotient(i, p.pairs, count);
  const float frequency = inv_freq[i - token * p.pairs];
  float c, s;
  cos_sin(turns(positions[token], frequency), c, s);
  const float not_finite = frequency - frequency;  // 0, or NaN
  cos[i] = p.factor * c + not_finite;
  sin[i] = p.sign * p.factor * s + not_finite;
}

// A thread has 2N dimensions of kRopeHeads heads of a token.
template <class T, int N>
MIXTAPE_DEVICE void rope(const RopeParams& p, Global<const T> x, Global<const float> all_cos,
                         Global<const float> all_sin, Global<T> y) {
  const std::int64_t units = p.pairs / N + (p.head_dim - 2 * p.pairs + 2 * N - 1) / (2 * N);
  const std::int64_t groups = (p.heads + kRopeHeads - 1) / kRopeHeads;
  const std::int64_t count = p.batch * p.length * groups * units, i = global_thread();
  if (i >= count) return;
  const std::int64_t above = quotient(i, units, count);
  const RopeUnit u = rope_unit<N>(p, static_cast<int>(i - above * units));
  const std::int64_t token = quotient(above, groups, count), head = (above - token * groups) * kRopeHeads;
  const std::int64_t at = (token * p.heads + head) * p.head_dim;
  Pack<T, N> a[kRopeHeads], b[kRopeHeads];
  MIXTAPE_UNROLL
  for (int h = 0; h < kRopeHeads; ++h) {
    if (head + h >= p.heads) break;
    a[h] = load_pack<N>(x + (at + h * p.head_dim + u.a));
    if (u.has_b) b[h] = load_pack<N>(x + (at + h * p.head_dim + u.b));
  }
  Pack<float, N> cos, sin;
  if (u.is_turned) {
    cos = load_pack<N>(all_cos + (angle_row(p, token) * p.pairs + u.pair));
    sin = load_pack<N>(all_sin + (angle_row(p, token) * p.pairs + u.pair));
  }
  MIXTAPE_UNROLL
  for (int h = 0; h < kRopeHeads; ++h) {
    if (head + h >= p.heads) break;
    float values[2 * N];
    MIXTAPE_UNROLL
    for (int k = 0; k < N; ++k) {
      values[k] = to_f32(a[h].v[k]);
      values[N + k] = u.has_b ? to_f32(b[h].v[k]) : 0.0f;
    }
    if (u.is_turned) turn<N>(values, cos, sin, p.is_interleaved != 0);
    put<T, N>(y + (at + h * p.head_dim + u.a), values, p.accumulate != 0);
    if (u.has_b) put<T, N>(y + (at + h * p.head_dim + u.b), values + N, p.accumulate != 0);
  }
}

#define ROPE_BY(T, NAME, N)                                                                     \
  MIXTAPE_KERNEL(rope_##T##NAME, 256, RopeParams p, Global<const T> x, Global<const float> cos, \
                 Global<const float> sin, Global<T> y) {                                        \
    await_earlier();                                                                            \
    rope<T, N>(p, x, cos, sin, y);                                                              \
  }
#define ROPE(T)                      \
  ROPE_BY(T, _packs, 16 / sizeof(T)) \
  ROPE_BY(T, _ones, 1)
MIXTAPE_VALUE_KERNELS(ROPE)

}  // namespace mixtape
