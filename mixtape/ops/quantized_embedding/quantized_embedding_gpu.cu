#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/ops/embedding/segments_gpu.h"
#include "mixtape/ops/quantize/codes_gpu.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_gpu_params.h"

namespace mixtape {

template <class T>
MIXTAPE_DEVICE void store_eight(Global<T> to, const Pack<T, kCodesAtOnce>& out) {
  if (is_aligned(to, 16)) return store_pack(to, out);
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) to[i] = out.v[i];
}

// A row per warp, eight columns per lane and four times that at a time: all codes, scales and biases are on
// their way before the first is used. block_y shares out a long row.
template <class T, class S, int Bits>
MIXTAPE_DEVICE void quantized_embedding_forward(const QuantizedRowsParams& p,
                                                Global<const std::uint32_t> words, Global<const S> scales,
                                                Global<const S> biases, Global<const std::uint32_t> ids,
                                                Global<T> y, Global<std::uint64_t> errors) {
  constexpr int kTurns = 4;
  const std::int64_t b = row_index();
  if (b >= p.lookup.count) return;
  const std::uint32_t bits = ids[b];
  const std::int64_t id = index_value(bits, p.lookup.ids_are_signed != 0);
  const Global<T> row = y + row_offset(b, p.lookup.hidden);
  if (id < 0 || id >= p.lookup.rows) {
    if (block_y() > 0) return;
    if (lane() == 0) report_index(errors, b, bits);
    return zero_row(row, p.lookup.hidden);
  }
  const std::int64_t chunks = p.lookup.hidden / kCodesAtOnce;
  for (std::int64_t c0 = block_y() * kTurns * kLanes; c0 < chunks; c0 += blocks_y() * kTurns * kLanes) {
    std::uint64_t codes[kTurns];
    S scale[kTurns], bias[kTurns];
    MIXTAPE_UNROLL
    for (int t = 0; t < kTurns; ++t) {
      const std::int64_t c = c0 + t * kLanes + lane(), chunk = id * chunks + c;
      if (c >= chunks) continue;
      codes[t] = load_codes(words, chunk, Bits);
      scale[t] = scales[chunk >> p.group_shift];
      bias[t] = biases[chunk >> p.group_shift];
    }
    lane_barrier();
    MIXTAPE_UNROLL
    for (int t = 0; t < kTurns; ++t) {
      const std::int64_t c = c0 + t * kLanes + lane();
      if (c >= chunks) continue;
      Pack<T, kCodesAtOnce> out;
      MIXTAPE_UNROLL
      for (int i = 0; i < kCodesAtOnce; ++i)
        out.v[i] = from_f32<T>(fma_f32(code_at(codes[t], i, Bits), to_f32(scale[t]), to_f32(bias[t])));
      store_eight(row + c * kCodesAtOnce, out);
    }
  }
}
#define FORWARD(BITS, T, S)                                                                         \
  MIXTAPE_KERNEL(quantized_embedding_forward_##T##_##S##_##BITS, 256, QuantizedRowsParams p,        \
                 Global<const std::uint32_t> words, Global<const S> scales, Global<const S> biases, \
                 Global<const std::uint32_t> ids, Global<T> y, Global<std::uint64_t> errors) {      \
    await_earlier();                                                                                \
    quantized_embedding_forward<T, S, BITS>(p, words, scales, biases, ids, y, errors);              \
  }
#define FORWARD_ALL(T, S) MIXTAPE_CODE_WIDTHS(FORWARD, T, S)
MIXTAPE_VALUE_PAIRS(FORWARD_ALL)

struct GroupSums {
  float products, sums;
};

// Over a group, in the order of dequantize_affine's backward: eight columns per thread, then over neighbours.
MIXTAPE_DEVICE GroupSums group_sums(const QuantizedRowsParams& p, const float* dw, std::uint64_t codes) {
  GroupSums all{0.0f, 0.0f};
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    all.products = fma_f32(dw[i], code_at(codes, i, p.bits), all.products);
    all.sums += dw[i];
  }
  for (int mask = 1; mask < 1 << p.group_shift; mask *= 2) {
    all.products += lane_xor(all.products, mask);
    all.sums += lane_xor(all.sums, mask);
  }
  return all;
}

template <class S>
MIXTAPE_DEVICE void put_sum(Global<S> out, std::int64_t i, float value, bool accumulate) {
  out[i] = from_f32<S>(accumulate ? to_f32(out[i]) + value : value);
}

// The table's gradient, eight columns per lane read N at a time, is summed by id and reduced by group: it is
// never stored.
template <class T, class S, int N>
MIXTAPE_DEVICE void quantized_embedding_row(const QuantizedRowsParams& p, Global<const T> dy,
                                            Global<const std::uint32_t> places, Global<const float> sums,
                                            Global<const std::uint32_t> words, std::int64_t id,
                                            std::int64_t begin, std::int64_t end, Global<S> dscales,
                                            Global<S> dbiases) {
  const std::int64_t hidden = p.lookup.hidden, step = static_cast<std::int64_t>(kLanes) * kCodesAtOnce;
  const bool is_empty = begin == end;
  const bool puts_scales =
      (p.out.wanted & p.out.dscales) != 0 && !(is_empty && (p.out.accumulate & p.out.dscales) != 0);
  const bool puts_biases =
      (p.out.wanted & p.out.dbiases) != 0 && !(is_empty && (p.out.accumulate & p.out.dbiases) != 0);
  for (std::int64_t c0 = block_y() * step; c0 < hidden; c0 += blocks_y() * step) {
    const std::int64_t c = c0 + lane() * kCodesAtOnce;
    const std::int64_t chunk = (id * hidden + c) / kCodesAtOnce, group = chunk >> p.group_shift;
    float dw[kCodesAtOnce];
    segment_sum<T, kCodesAtOnce / N, N>(dy, hidden, places, sums, begin, end, c, N, dw);
    const std::uint64_t codes = is_empty || c >= hidden ? 0 : load_codes(words, chunk, p.bits);
    const GroupSums all = group_sums(p, dw, codes);
    if (c >= hidden || group << p.group_shift != chunk) continue;
    if (puts_scales) put_sum(dscales, group, all.products, (p.out.accumulate & p.out.dscales) != 0);
    if (puts_biases) put_sum(dbiases, group, all.sums, (p.out.accumulate & p.out.dbiases) != 0);
  }
}

// kRowsOfWarp rows of the table per warp.
template <class T, class S, int N>
MIXTAPE_DEVICE void quantized_embedding_backward(const QuantizedRowsParams& p, Global<const T> dy,
                                                 Global<const std::uint32_t> places,
                                                 Global<const std::uint32_t> begins, Global<const float> sums,
                                                 Global<const std::uint32_t> words, Global<S> dscales,
                                                 Global<S> dbiases) {
  const std::int64_t first = row_index() * kRowsOfWarp;
  if (first >= p.lookup.rows) return;
  const std::int64_t known = first + lane() < p.lookup.rows ? first + lane() : p.lookup.rows;
  const std::uint32_t my_begin = begins[known];
  MIXTAPE_ROLLED
  for (int r = 0; r < kRowsOfWarp && first + r < p.lookup.rows; ++r) {
    const std::int64_t begin = lane_shuffle(my_begin, r), end = lane_shuffle(my_begin, r + 1);
    quantized_embedding_row<T, S, N>(p, dy, places, sums, words, first + r, begin, end, dscales, dbiases);
  }
}
#define BACKWARD_OF(T, S, N, name)                                                                           \
  MIXTAPE_KERNEL(quantized_embedding_backward_##T##_##S##name, 256, QuantizedRowsParams p,                   \
                 Global<const T> dy, Global<const std::uint32_t> places, Global<const std::uint32_t> begins, \
                 Global<const float> sums, Global<const std::uint32_t> words, Global<S> dscales,             \
                 Global<S> dbiases) {                                                                        \
    await_earlier();                                                                                         \
    quantized_embedding_backward<T, S, N>(p, dy, places, begins, sums, words, dscales, dbiases);             \
  }
#define BACKWARD(T, S)                    \
  BACKWARD_OF(T, S, kCodesAtOnce, _packs) \
  BACKWARD_OF(T, S, 1, _any)
MIXTAPE_VALUE_PAIRS(BACKWARD)

}  // namespace mixtape
