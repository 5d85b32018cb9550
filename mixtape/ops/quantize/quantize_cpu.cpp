#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/quantize/quantize_cpu.cpp"
#include "mixtape/ops/quantize/quantize_cpu.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/quantize/decode_rows_cpu.h"
#include "mixtape/ops/quantize/encode_group_cpu.h"
#include "mixtape/ops/quantize/group_sums_cpu.h"
#include "mixtape/ops/quantize/quantize_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

template <class T, class S>
void dequantize_affine_forward(const HostCall& call) {
  const auto& p = call.params<QuantizeParams>();
  const cpu::QuantizedRows w({call.reads[0], call.reads[1], call.reads[2], p.affine});
  T* out = call.write<T>(0);
  const bool is_large = streams(out, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    decode_rows<T, S>(w, begin, end, out + begin * p.cols, is_large);
  });
}

// As affine.h, bit for bit. False where a weight or the range is not finite.
bool quantize_group(const float* w, AffineParams p, Rounding rounding, std::uint8_t* codes,
                    ScaleAndBias& fit) {
  const auto size = static_cast<std::size_t>(p.group_size);
  Floats lows = load(w), highs = rounding == Rounding::gpu ? zero() : lows, not_finite = zero();
  for (std::size_t i = 0; i < size; i += lanes()) {
    const Floats v = load(w + i);
    lows = hn::Min(lows, v);
    highs = hn::Max(highs, v);
    not_finite = hn::Add(not_finite, hn::Mul(v, zero()));  // NaN once there is one
  }
  const float low = hn::GetLane(hn::MinOfLanes(kF, lows)), high = hn::GetLane(hn::MaxOfLanes(kF, highs));
  if (sum_lanes(not_finite) != 0.0f || !std::isfinite(high - low)) return false;
  fit = fit_range(low, high, p.bits, rounding);
  encode_group(w, p, rounding, fit, codes);
  return true;
}

// One row; `codes` is scratch of `cols` bytes. False where a weight or a range is not finite.
bool quantize_row_simd(std::span<const float> w, AffineParams p, Rounding rounding,
                       std::span<std::uint8_t> codes, std::span<std::uint32_t> words, std::span<float> scales,
                       std::span<float> biases) {
  for (std::size_t g = 0; g < scales.size(); ++g) {
    const std::size_t at = g * static_cast<std::size_t>(p.group_size);
    ScaleAndBias fit;
    if (!quantize_group(w.data() + at, p, rounding, codes.data() + at, fit)) return false;
    scales[g] = fit.scale;
    biases[g] = fit.bias;
  }
  pack_codes(codes, p.bits, words);
  return true;
}

template <class T, class S>
void reduce_row(const cpu::QuantizedRows& w, std::int64_t row, const Unpacker& unpacker, const T* dw,
                const cpu::ScaleGradients& out) {
  const std::int64_t groups = w.params.groups(w.cols);
  const std::size_t step = 2 * static_cast<std::size_t>(w.params.bits);
  auto [at, end] = row_bytes(w, row);
  for (std::int64_t g = 0; g < groups; ++g) {
    GroupSums sums;
    for (std::int32_t done = 0; done < w.params.group_size; done += kBlock, at += step, dw += kBlock) {
      const Block block = load_block(at, step, end);
      for (std::size_t i = 0; i < kBlock; i += lanes()) sums.add(load(dw + i), codes(unpacker, block, i));
    }
    sums.put<S>(out, row * groups + g);
  }
}

template <class T, class S>
void reduce_all(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, const T* dw,
                const cpu::ScaleGradients& out) {
  const Unpacker unpacker(w.params.bits);
  for (std::int64_t r = begin; r < end; ++r) reduce_row<T, S>(w, r, unpacker, dw + (r - begin) * w.cols, out);
}

template <class T, class S>
void dequantize_affine_backward(const HostCall& call) {
  const auto& p = call.params<QuantizeParams>();
  const cpu::QuantizedRows w({call.reads[1], {}, {}, p.affine});
  const T* dw = call.read<T>(0);
  const cpu::ScaleGradients out = cpu::scale_gradients(call, p.out);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    reduce_all<T, S>(w, begin, end, dw + begin * p.cols, out);
  });
}

#define MIXTAPE_QUANTIZE_KERNELS(t, T, s, S)                                                   \
  [[maybe_unused]] void dequantize_affine_forward_##t##_##s(const HostCall& c) {               \
    dequantize_affine_forward<T, S>(c);                                                        \
  }                                                                                            \
  [[maybe_unused]] void dequantize_affine_backward_##t##_##s(const HostCall& c) {              \
    dequantize_affine_backward<T, S>(c);                                                       \
  }                                                                                            \
  [[maybe_unused]] void decode_rows_##t##_##s(const cpu::QuantizedRows& w, std::int64_t begin, \
                                              std::int64_t end, T* out) {                      \
    decode_rows<T, S>(w, begin, end, out, false);                                              \
  }                                                                                            \
  [[maybe_unused]] void reduce_rows_##t##_##s(const cpu::QuantizedRows& w, std::int64_t begin, \
                                              std::int64_t end, const T* dw,                   \
                                              const cpu::ScaleGradients& out) {                \
    reduce_all<T, S>(w, begin, end, dw, out);                                                  \
  }
MIXTAPE_QUANTIZE_PAIRS(MIXTAPE_QUANTIZE_KERNELS)
#undef MIXTAPE_QUANTIZE_KERNELS

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <atomic>
#include <vector>

namespace mixtape {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

std::span<const float> widen(const float* w, std::int64_t cols, std::vector<float>&) {
  return {w, static_cast<std::size_t>(cols)};
}
template <class T>
std::span<const float> widen(const T* w, std::int64_t cols, std::vector<float>& scratch) {
  scratch.resize(static_cast<std::size_t>(cols));
  for (std::size_t c = 0; c < scratch.size(); ++c) scratch[c] = static_cast<float>(w[c]);
  return scratch;
}

// Rounds to S. Returns the first group that overflows it, or kNone.
template <class S>
std::int64_t put_row(const std::vector<float>& values, S* out) {
  std::int64_t bad = kNone;
  for (std::size_t g = values.size(); g-- > 0;) {
    out[g] = S(values[g]);
    if (!std::isfinite(static_cast<float>(out[g]))) bad = static_cast<std::int64_t>(g);
  }
  return bad;
}

HWY_EXPORT(quantize_row_simd);

struct Scratch {
  explicit Scratch(const QuantizeParams& p)
      : codes(static_cast<std::size_t>(p.cols)),
        scales(static_cast<std::size_t>(p.affine.groups(p.cols))),
        biases(scales.size()) {}
  std::vector<float> w;
  std::vector<std::uint8_t> codes;
  std::vector<float> scales, biases;
};

// Quantizes row r; returns the column of the first weight that cannot be, or kNone.
template <class T, class S>
std::int64_t quantize_one(const HostCall& call, const QuantizeParams& p, std::int64_t r, Scratch& scratch) {
  const std::span<const float> w = widen(call.read<T>(0) + r * p.cols, p.cols, scratch.w);
  const std::int64_t groups = p.affine.groups(p.cols), words = p.affine.packed_cols(p.cols);
  const std::span packed(call.write<std::uint32_t>(0) + r * words, static_cast<std::size_t>(words));
  if (!HWY_DYNAMIC_DISPATCH(quantize_row_simd)(w, p.affine, p.rounding, scratch.codes, packed, scratch.scales,
                                               scratch.biases)) {
    return find_non_finite(w, p.affine.group_size);
  }
  const std::int64_t overflow = std::min(put_row(scratch.scales, call.write<S>(1) + r * groups),
                                         put_row(scratch.biases, call.write<S>(2) + r * groups));
  return overflow == kNone ? kNone : overflow * p.affine.group_size;
}

template <class T>
[[noreturn]] void refuse(const HostCall& call, const QuantizeParams& p, std::int64_t position) {
  const std::int64_t row = position / p.cols, col = position % p.cols;
  std::vector<float> scratch;
  const std::span<const float> w = widen(call.read<T>(0) + row * p.cols, p.cols, scratch);
  if (find_non_finite(w, p.affine.group_size) == col) {
    refuse_weight("quantize_affine", row, col, w[static_cast<std::size_t>(col)]);
  }
  fail(ErrorCode::invalid_argument, "quantize_affine: scale or bias of the group at row ", row, ", column ",
       col, " overflows ", call.writes[1].dtype());
}

template <class T, class S>
void quantize_as(const HostCall& call) {
  const auto& p = call.params<QuantizeParams>();
  std::atomic<std::int64_t> first_bad = kNone;
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    Scratch scratch(p);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t col = quantize_one<T, S>(call, p, r, scratch);
      if (col == kNone) continue;
      std::int64_t seen = first_bad;
      while (r * p.cols + col < seen && !first_bad.compare_exchange_weak(seen, r * p.cols + col)) {
      }
      return;
    }
  });
  if (first_bad != kNone) refuse<T>(call, p, first_bad);
}

template <class T>
void quantize(const HostCall& call) {
  with_type(call.writes[1].dtype(), [&](auto s) { quantize_as<T, decltype(s)>(call); });
}
MIXTAPE_HOST_KERNEL("quantize_affine_forward_f32", quantize<float>);
MIXTAPE_HOST_KERNEL("quantize_affine_forward_bf16", quantize<bf16>);
MIXTAPE_HOST_KERNEL("quantize_affine_forward_f16", quantize<f16>);

}  // namespace

#define MIXTAPE_EXPORT_QUANTIZE(t, T, s, S)                       \
  MIXTAPE_REGISTER_SIMD_ONE(dequantize_affine_forward_##t##_##s)  \
  MIXTAPE_REGISTER_SIMD_ONE(dequantize_affine_backward_##t##_##s) \
  HWY_EXPORT(decode_rows_##t##_##s);                              \
  HWY_EXPORT(reduce_rows_##t##_##s);
MIXTAPE_QUANTIZE_PAIRS(MIXTAPE_EXPORT_QUANTIZE)

namespace cpu {

ScaleGradients scale_gradients(const HostCall& call, const ScaleBits& out) {
  const auto accumulate = [&](std::uint32_t bit) {
    return (out.accumulate & bit) != 0 ? Accumulate::yes : Accumulate::no;
  };
  return {call.write_if<void>(out.wanted, out.dscales), call.write_if<void>(out.wanted, out.dbiases),
          call.writes[0].dtype(), accumulate(out.dscales), accumulate(out.dbiases)};
}

QuantizedRows::QuantizedRows(const QuantizedWeight& w)
    : words(w.codes.host_data<std::uint32_t>()),
      rows(w.codes.shape().rows()),
      cols(w.codes.shape().cols() / w.format.bits * 32),
      params(w.format) {
  if (!w.scales) return;
  scales = w.scales.host_bytes();
  biases = w.biases.host_bytes();
  scale_dtype = w.scales.dtype();
}

#define MIXTAPE_ROWS(t, T)                                                                                   \
  void dequantize_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, T* out) {               \
    if (w.scale_dtype == DType::f32) return HWY_DYNAMIC_DISPATCH(decode_rows_##t##_f32)(w, begin, end, out); \
    if (w.scale_dtype == DType::bf16)                                                                        \
      return HWY_DYNAMIC_DISPATCH(decode_rows_##t##_bf16)(w, begin, end, out);                               \
    HWY_DYNAMIC_DISPATCH(decode_rows_##t##_f16)(w, begin, end, out);                                         \
  }                                                                                                          \
  void reduce_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const T* dw,                \
                   const ScaleGradients& out) {                                                              \
    if (out.dtype == DType::f32) return HWY_DYNAMIC_DISPATCH(reduce_rows_##t##_f32)(w, begin, end, dw, out); \
    if (out.dtype == DType::bf16)                                                                            \
      return HWY_DYNAMIC_DISPATCH(reduce_rows_##t##_bf16)(w, begin, end, dw, out);                           \
    HWY_DYNAMIC_DISPATCH(reduce_rows_##t##_f16)(w, begin, end, dw, out);                                     \
  }
MIXTAPE_ROWS(f32, float)
MIXTAPE_ROWS(bf16, bf16)
MIXTAPE_ROWS(f16, f16)

}  // namespace cpu
}  // namespace mixtape
#endif
