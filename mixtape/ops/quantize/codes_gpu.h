// Codes of quantized weights in GPU kernels, a little-endian bit stream in u32 words, and sums over groups.
// A thread has eight neighbouring weights, a group 2, 4, 8 or 16 neighbouring threads.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/quantize/quantize_gpu_params.h"

namespace mixtape {

// X(bits): one kernel per width.
#define MIXTAPE_CODE_WIDTHS(X, ...) \
  X(2, __VA_ARGS__) X(3, __VA_ARGS__) X(4, __VA_ARGS__) X(5, __VA_ARGS__) X(6, __VA_ARGS__) X(8, __VA_ARGS__)

// Codes 8*chunk .. 8*chunk + 7, the first in the lowest bits. They lie in one or two words.
MIXTAPE_DEVICE std::uint64_t load_codes(Global<const std::uint32_t> words, std::int64_t chunk, int bits) {
  const std::int64_t first = chunk * bits / 4;
  const int shift = static_cast<int>(chunk * bits % 4) * 8;
  std::uint64_t loaded = words[first];
  if (shift + kCodesAtOnce * bits > 32) loaded |= static_cast<std::uint64_t>(words[first + 1]) << 32;
  return loaded >> shift;
}
MIXTAPE_DEVICE float code_at(std::uint64_t codes, int i, int bits) {
  return static_cast<float>(static_cast<std::uint32_t>(codes >> (i * bits)) & ((1u << bits) - 1u));
}

// Values at..at+7 of w; 0 past the end.
template <class T>
MIXTAPE_DEVICE void load_eight(Global<const T> w, std::int64_t at, std::int64_t count,
                               float (&v)[kCodesAtOnce]) {
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) v[i] = 0.0f;
  if (at >= count) return;
  if (is_aligned(w, 16)) {
    const auto pack = load_pack<kCodesAtOnce>(w + at);
    MIXTAPE_UNROLL
    for (int i = 0; i < kCodesAtOnce; ++i) v[i] = to_f32(pack.v[i]);
  } else {
    MIXTAPE_UNROLL
    for (int i = 0; i < kCodesAtOnce; ++i) v[i] = to_f32(w[at + i]);
  }
}

// To p .. p+7; `is_dense`: p is aligned to 16 bytes.
template <class T>
MIXTAPE_DEVICE void store_eight(Global<T> p, const Pack<T, kCodesAtOnce>& v, bool is_dense) {
  if (is_dense) return store_pack(p, v);
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) p[i] = v.v[i];
}

// Four neighbouring threads hold 32 codes, 8*bits bits each: `bits` words, which they write in turn.
MIXTAPE_DEVICE void store_codes(Global<std::uint32_t> words, std::int64_t chunk, bool is_inside, int bits,
                                std::uint64_t codes) {
  const int quad = lane() / 4 * 4, mine = lane() % 4;
  MIXTAPE_UNROLL
  for (int turn = 0; turn < 2; ++turn) {
    const int word = turn * 4 + mine;
    const int from = word * 4 / bits < 4 ? word * 4 / bits : 3, shift = word * 32 - from * 8 * bits;
    const std::uint64_t first = lane_shuffle(codes, quad + from);
    const std::uint64_t next = lane_shuffle(codes, quad + (from < 3 ? from + 1 : 3));
    if (!is_inside || word >= bits) continue;
    const int held = 8 * bits - shift;
    std::uint32_t value = static_cast<std::uint32_t>(first >> shift);
    if (held < 32) value |= static_cast<std::uint32_t>(next << held);
    words[chunk / 4 * bits + word] = value;
  }
}

template <class S>
MIXTAPE_DEVICE void put_gradient(Global<S> out, std::int64_t i, float value, bool accumulate) {
  out[i] = from_f32<S>(accumulate ? to_f32(out[i]) + value : value);
}

// The gradients of a group, whose neighbouring threads hold parts of its sums. Every thread of the block takes
// part.
template <class S>
MIXTAPE_DEVICE void put_group_sums(const ReduceCodesParams& p, std::int64_t chunk, float products, float sum,
                                   Global<S> dscales, Global<S> dbiases) {
  for (int mask = 1; mask < 1 << p.group_shift; mask *= 2) {
    products += lane_xor(products, mask);
    sum += lane_xor(sum, mask);
  }
  const std::int64_t group = chunk >> p.group_shift;
  if (chunk * kCodesAtOnce >= p.count || group << p.group_shift != chunk) return;
  const ScaleBits out = p.out;
  if ((out.wanted & out.dscales) != 0)
    put_gradient(dscales, group, products, (out.accumulate & out.dscales) != 0);
  if ((out.wanted & out.dbiases) != 0) put_gradient(dbiases, group, sum, (out.accumulate & out.dbiases) != 0);
}

}  // namespace mixtape
