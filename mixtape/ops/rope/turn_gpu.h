// What one thread has of a head that is rotated: 2N of its dimensions.
#pragma once

#include "mixtape/backend/gpu/streams.h"
#include "mixtape/ops/rope/rope_gpu_params.h"

namespace mixtape {

// Two packs of N dimensions, from `a` and `b` on. Either they are N pairs, from number `pair` on: `a` holds the first
// halves and `b` the second ones, or, interleaved, N/2 pairs each; or no pair has them. `has_b` is false where the head
// ends before.
struct RopeUnit {
  int a, b, pair;
  bool is_turned, has_b;
};

// N is a pack where pairs and head_dim are multiples of it, else 1.
template <int N>
MIXTAPE_DEVICE RopeUnit rope_unit(const RopeParams& p, int unit) {
  const int pairs = static_cast<int>(p.pairs), turned = pairs / N;
  RopeUnit u;
  u.is_turned = unit < turned;
  u.pair = unit * N;
  if (u.is_turned) {
    u.a = p.is_interleaved != 0 ? 2 * unit * N : unit * N;
    u.b = u.a + (p.is_interleaved != 0 ? N : pairs);
  } else {
    u.a = 2 * pairs + (unit - turned) * 2 * N;
    u.b = u.a + N;
  }
  u.has_b = u.b < p.head_dim;
  return u;
}

// values[0..N) are those of `a`, values[N..2N) those of `b`.
template <int N>
MIXTAPE_DEVICE void turn(float (&values)[2 * N], const Pack<float, N>& cos, const Pack<float, N>& sin,
                         bool is_interleaved) {
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) {
    if (is_interleaved) {
      const float x = values[2 * i], y = values[2 * i + 1];
      values[2 * i] = fma_f32(-y, sin.v[i], x * cos.v[i]);
      values[2 * i + 1] = fma_f32(x, sin.v[i], y * cos.v[i]);
    } else {
      const float x = values[i], y = values[N + i];
      values[i] = fma_f32(-y, sin.v[i], x * cos.v[i]);
      values[N + i] = fma_f32(x, sin.v[i], y * cos.v[i]);
    }
  }
}

template <class T, int N>
MIXTAPE_DEVICE void put(Global<T> y, const float* values, bool accumulate) {
  Pack<T, N> out;
  if (accumulate) out = load_pack<N>(y);
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) out.v[i] = from_f32<T>(accumulate ? to_f32(out.v[i]) + values[i] : values[i]);
  store_pack(y, out);
}

// The row of the tables of cosines and sines that a token has.
MIXTAPE_DEVICE std::int64_t angle_row(const RopeParams& p, std::int64_t token) {
  if (p.position_batch != 1) return token;
  return token - quotient(token, p.length, p.batch * p.length) * p.length;
}

}  // namespace mixtape
