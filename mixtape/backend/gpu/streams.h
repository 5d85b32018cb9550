// For kernels whose elements have nothing to do with each other: out[o][i] (+)= op(in[0][i], in[1][i], ...).
// Packs of 16 bytes, several in flight per thread; blocks of 256 threads, as stream_params.h says.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/stream_params.h"

namespace mixtape {

// i / n for i < count: in 32 bits where they do.
MIXTAPE_DEVICE std::int64_t quotient(std::int64_t i, std::int64_t n, std::int64_t count) {
  if (count > 0xffffffffll) return i / n;
  return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(n);
}

template <class T, int In, int Out>
struct Streams {
  Global<const T> in[In];
  Global<T> out[Out];
  bool wants[Out];
  bool accumulate[Out];
};

// in[k] starts again every period[k] elements.
template <int In>
struct Periods {
  std::int64_t period[In];
  std::int64_t count;

  MIXTAPE_DEVICE std::int64_t at(int k, std::int64_t i) const {
    if (period[k] == count) return i;
    return i - quotient(i, period[k], count) * period[k];
  }
  template <int N, class T>
  MIXTAPE_DEVICE Pack<T, N> load(Global<const T> p, int k, std::int64_t i) const {
    std::int64_t from = at(k, i);
    if (period[k] == count || period[k] % N == 0) return load_pack<N>(p + from);
    Pack<T, N> pack;
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c) {
      pack.v[c] = p[from];
      from = from + 1 == period[k] ? 0 : from + 1;
    }
    return pack;
  }
};
struct NoPeriods {
  MIXTAPE_DEVICE std::int64_t at(int, std::int64_t i) const { return i; }
  template <int N, class T>
  MIXTAPE_DEVICE Pack<T, N> load(Global<const T> p, int, std::int64_t i) const {
    return load_pack<N>(p + i);
  }
};

template <class T, int In, int Out>
MIXTAPE_DEVICE bool are_aligned(const Streams<T, In, Out>& s) {
  bool all = true;
  MIXTAPE_UNROLL
  for (int k = 0; k < In; ++k) all = all && is_aligned(s.in[k], 16);
  MIXTAPE_UNROLL
  for (int o = 0; o < Out; ++o) all = all && is_aligned(s.out[o], 16);
  return all;
}

template <class T, int N, int In, int Out, class Op>
MIXTAPE_DEVICE void stream_pack(const Streams<T, In, Out>& s, const Pack<T, N> (&held)[In], std::int64_t i,
                                const Op& op) {
  float result[N][Out];
  MIXTAPE_UNROLL
  for (int c = 0; c < N; ++c) {
    float in[In];
    MIXTAPE_UNROLL
    for (int k = 0; k < In; ++k) in[k] = to_f32(held[k].v[c]);
    op(in, result[c]);
  }
  MIXTAPE_UNROLL
  for (int o = 0; o < Out; ++o) {
    if (!s.wants[o]) continue;
    Pack<T, N> y;
    if (s.accumulate[o]) y = load_pack<N>(s.out[o] + i);
    MIXTAPE_UNROLL
    for (int c = 0; c < N; ++c)
      y.v[c] = from_f32<T>(s.accumulate[o] ? to_f32(y.v[c]) + result[c][o] : result[c][o]);
    store_pack(s.out[o] + i, y);
  }
}

template <class T, int In, int Out, class Op, class Where>
MIXTAPE_DEVICE void stream_one(const Streams<T, In, Out>& s, std::int64_t i, const Op& op,
                               const Where& where) {
  float in[In], result[Out];
  MIXTAPE_UNROLL
  for (int k = 0; k < In; ++k) in[k] = to_f32(s.in[k][where.at(k, i)]);
  op(in, result);
  MIXTAPE_UNROLL
  for (int o = 0; o < Out; ++o) {
    if (!s.wants[o]) continue;
    s.out[o][i] = from_f32<T>(s.accumulate[o] ? to_f32(s.out[o][i]) + result[o] : result[o]);
  }
}

template <class T, int In, int Out, class Op, class Where = NoPeriods>
MIXTAPE_DEVICE void stream(const Streams<T, In, Out>& s, std::int64_t count, const Op& op,
                           const Where& where = Where()) {
  constexpr int kPack = 16 / sizeof(T), kPacks = stream_packs(In);
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * kPack, begin = block_x() * step * kPacks;
  std::int64_t one = begin + thread_x(), end = begin + step * kPacks;
  if (are_aligned(s)) {
    Pack<T, kPack> held[kPacks][In];
    MIXTAPE_UNROLL
    for (int u = 0; u < kPacks; ++u) {
      const std::int64_t i = begin + u * step + thread_x() * kPack;
      if (i + kPack > count) continue;
      MIXTAPE_UNROLL
      for (int k = 0; k < In; ++k) held[u][k] = where.template load<kPack>(s.in[k], k, i);
    }
    MIXTAPE_UNROLL
    for (int u = 0; u < kPacks; ++u) {
      const std::int64_t i = begin + u * step + thread_x() * kPack;
      if (i + kPack <= count) stream_pack(s, held[u], i, op);
    }
    one = count - count % kPack + thread_x();  // what no pack holds
    end = block_x() == 0 ? count : 0;
  }
  for (; one < end && one < count; one += threads_x()) stream_one(s, one, op, where);
}

}  // namespace mixtape
