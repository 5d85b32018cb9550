#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/quantize/codes_gpu.h"
#include "mixtape/ops/quantize/fit_range_gpu.h"

namespace mixtape {

// Finds the first weight of a group that is not finite or makes its range overflow.
template <class T>
MIXTAPE_DEVICE void report_group(Global<const T> w, std::int64_t begin, int size,
                                 Global<std::uint64_t> errors) {
  float low = to_f32(w[begin]), high = low;
  for (int i = 0; i < size; ++i) {
    const float v = to_f32(w[begin + i]);
    low = v < low ? v : low;
    high = v > high ? v : high;
    if (is_finite(v) && is_finite(high - low)) continue;
    return report_weight(errors, begin + i, v);
  }
}

// Eight weights per thread; a group is 2, 4, 8 or 16 neighbouring threads.
template <class T, class S>
MIXTAPE_DEVICE void quantize(const QuantizeGpuParams& p, Global<const T> w, Global<std::uint32_t> words,
                             Global<S> scales, Global<S> biases, Global<std::uint64_t> errors) {
  const std::int64_t chunk = global_thread(), at = chunk * kCodesAtOnce;
  const bool is_inside = at < p.count;
  float v[kCodesAtOnce];
  load_eight(w, at, p.count, v);
  float low = v[0], high = p.rounds_to_even != 0 ? v[0] : 0.0f, not_finite = 0.0f;
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    low = v[i] < low ? v[i] : low;
    high = v[i] > high ? v[i] : high;
    not_finite += v[i] * 0.0f;  // NaN once there is one
  }
  for (int mask = 1; mask < p.group_threads; mask *= 2) {
    const float other_low = lane_xor(low, mask), other_high = lane_xor(high, mask);
    low = other_low < low ? other_low : low;
    high = other_high > high ? other_high : high;
    not_finite += lane_xor(not_finite, mask);
  }
  const bool is_bad = not_finite != 0.0f || !is_finite(high - low);
  GroupFit fit{1.0f, 0.0f};
  if (!is_bad) fit = fit_range_gpu(p.bits, p.rounds_to_even != 0, low, high);
  const float largest = static_cast<float>((1 << p.bits) - 1);
  std::uint64_t codes = 0;
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    const float code = round_as(p.rounds_to_even != 0, (v[i] - fit.bias) / fit.scale);
    const float clamped = code > 0.0f ? (code < largest ? code : largest) : 0.0f;
    codes |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(clamped)) << (i * p.bits);
  }
  store_codes(words, chunk, is_inside, p.bits, codes);
  if (!is_inside || chunk % p.group_threads != 0) return;
  const S scale = from_f32<S>(fit.scale), bias = from_f32<S>(fit.bias);
  scales[chunk / p.group_threads] = scale;
  biases[chunk / p.group_threads] = bias;
  if (is_bad) {
    report_group(w, at, p.group_threads * kCodesAtOnce, errors);
  } else if (!is_finite(to_f32(scale)) || !is_finite(to_f32(bias))) {
    report_weight(errors, at, 0.0f);
  }
}

#define QUANTIZE(T, S)                                                            \
  MIXTAPE_KERNEL(quantize_##T##_##S, 256, QuantizeGpuParams p, Global<const T> w, \
                 Global<std::uint32_t> words, Global<S> scales, Global<S> biases, \
                 Global<std::uint64_t> errors) {                                  \
    await_earlier();                                                              \
    quantize<T, S>(p, w, words, scales, biases, errors);                          \
  }
MIXTAPE_VALUE_PAIRS(QUANTIZE)

// Eight weights per thread, four times: all codes, scales and biases are on their way before the first is
// used.
template <class T, class S, int Bits>
MIXTAPE_DEVICE void dequantize(const DequantizeGpuParams& p, Global<const std::uint32_t> words,
                               Global<const S> scales, Global<const S> biases, Global<T> w) {
  constexpr int kTurns = 4;
  const std::int64_t first = static_cast<std::int64_t>(block_x()) * kTurns * threads_x() + thread_x();
  const std::int64_t chunks = p.count / kCodesAtOnce;
  std::uint64_t codes[kTurns];
  float scale[kTurns], bias[kTurns];
  MIXTAPE_UNROLL
  for (int t = 0; t < kTurns; ++t) {
    const std::int64_t chunk = first + t * threads_x();
    if (chunk >= chunks) break;
    codes[t] = load_codes(words, chunk, Bits);
    scale[t] = to_f32(scales[chunk >> p.group_shift]);
    bias[t] = to_f32(biases[chunk >> p.group_shift]);
  }
  const bool is_dense = is_aligned(w, 16);
  MIXTAPE_UNROLL
  for (int t = 0; t < kTurns; ++t) {
    const std::int64_t chunk = first + t * threads_x();
    if (chunk >= chunks) break;
    Pack<T, kCodesAtOnce> out;
    MIXTAPE_UNROLL
    for (int i = 0; i < kCodesAtOnce; ++i)
      out.v[i] = from_f32<T>(fma_f32(code_at(codes[t], i, Bits), scale[t], bias[t]));
    store_eight(w + chunk * kCodesAtOnce, out, is_dense);
  }
}

#define DEQUANTIZE(BITS, T, S)                                                                      \
  MIXTAPE_KERNEL(dequantize_##T##_##S##_##BITS, 256, DequantizeGpuParams p,                         \
                 Global<const std::uint32_t> words, Global<const S> scales, Global<const S> biases, \
                 Global<T> w) {                                                                     \
    await_earlier();                                                                                \
    dequantize<T, S, BITS>(p, words, scales, biases, w);                                            \
  }
#define DEQUANTIZE_ALL(T, S) MIXTAPE_CODE_WIDTHS(DEQUANTIZE, T, S)
MIXTAPE_VALUE_PAIRS(DEQUANTIZE_ALL)

// dscale = sum dw*code and dbias = sum dw per group: eight weights per thread, then over the group's
// neighbouring threads.
template <class T, class S, int Bits>
MIXTAPE_DEVICE void reduce_codes(const ReduceCodesParams& p, Global<const T> dw,
                                 Global<const std::uint32_t> words, Global<S> dscales, Global<S> dbiases) {
  const std::int64_t chunk = global_thread();
  float d[kCodesAtOnce];
  load_eight(dw, chunk * kCodesAtOnce, p.count, d);
  const std::uint64_t codes = chunk * kCodesAtOnce < p.count ? load_codes(words, chunk, Bits) : 0;
  float products = 0.0f, sum = 0.0f;
  MIXTAPE_UNROLL
  for (int i = 0; i < kCodesAtOnce; ++i) {
    products = fma_f32(d[i], code_at(codes, i, Bits), products);
    sum += d[i];
  }
  put_group_sums(p, chunk, products, sum, dscales, dbiases);
}

#define REDUCE(BITS, T, S)                                                                      \
  MIXTAPE_KERNEL(reduce_codes_##T##_##S##_##BITS, 256, ReduceCodesParams p, Global<const T> dw, \
                 Global<const std::uint32_t> words, Global<S> dscales, Global<S> dbiases) {     \
    await_earlier();                                                                            \
    reduce_codes<T, S, BITS>(p, dw, words, dscales, dbiases);                                   \
  }
#define REDUCE_ALL(T, S) MIXTAPE_CODE_WIDTHS(REDUCE, T, S)
MIXTAPE_VALUE_PAIRS(REDUCE_ALL)

}  // namespace mixtape
