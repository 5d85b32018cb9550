#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/quantize/quantize_cpu.cpp"
#include "mixtape/ops/quantize/quantize_cpu.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/quantize/quantize_params.h"

#ifndef MIXTAPE_QUANTIZE_PAIRS
// X(name and type of the weight, name and type of its scales)
#define MIXTAPE_QUANTIZE_PAIRS(X) \
  X(f32, float, f32, float)       \
  X(f32, float, bf16, bf16)       \
  X(f32, float, f16, f16)         \
  X(bf16, bf16, f32, float)       \
  X(bf16, bf16, bf16, bf16)       \
  X(bf16, bf16, f16, f16)         \
  X(f16, f16, f32, float)         \
  X(f16, f16, bf16, bf16)         \
  X(f16, f16, f16, f16)
#endif

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

constexpr std::size_t kBlock = 16;  // codes that are unpacked at a time: 2*bits bytes

// fma also where the instruction set has none.
HWY_INLINE Floats fused(Floats a, Floats b, Floats c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  HWY_ALIGN float x[HWY_MAX_BYTES / sizeof(float)], y[HWY_MAX_BYTES / sizeof(float)],
      z[HWY_MAX_BYTES / sizeof(float)];
  store(a, x), store(b, y), store(c, z);
  for (std::size_t i = 0; i < lanes(); ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return load(z);
#endif
}

// A code of at most 8 bits lies in two bytes: where they are in the block, and how far to shift.
struct Unpacker {
  HWY_ALIGN std::uint8_t bytes[4 * kBlock];
  HWY_ALIGN std::uint32_t shifts[kBlock];
  std::uint32_t mask;

  explicit Unpacker(std::int32_t bits) : mask((1u << bits) - 1u) {
    for (std::size_t i = 0; i < kBlock; ++i) {
      const std::size_t first = i * static_cast<std::size_t>(bits);
      const std::size_t last = first + static_cast<std::size_t>(bits) - 1;
      bytes[4 * i] = static_cast<std::uint8_t>(first / 8);
      bytes[4 * i + 1] = static_cast<std::uint8_t>(last / 8 != first / 8 ? last / 8 : 0x80);  // 0x80 gives 0
      bytes[4 * i + 2] = bytes[4 * i + 3] = 0x80;
      shifts[i] = static_cast<std::uint32_t>(first % 8);
    }
  }
};

#if HWY_TARGET == HWY_SCALAR
using Block = const std::uint8_t*;
HWY_INLINE Block load_block(const std::uint8_t* p, std::size_t, const std::uint8_t*) { return p; }
HWY_INLINE Floats codes(const Unpacker& u, Block block, std::size_t first) {
  const std::uint8_t low = u.bytes[4 * first], high = u.bytes[4 * first + 1];
  const std::uint32_t pair = block[low] | (high == 0x80 ? 0u : static_cast<std::uint32_t>(block[high]) << 8);
  return set(static_cast<float>((pair >> u.shifts[first]) & u.mask));
}
#else
using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using Block = hn::Vec<ByteTag>;

// The `wanted` bytes of a block in every 128-bit part of a vector, without a read at or after `end`.
HWY_INLINE Block load_block(const std::uint8_t* p, std::size_t wanted, const std::uint8_t* end) {
  if (HWY_LIKELY(end - p >= 16)) return hn::LoadDup128(ByteTag(), p);
  HWY_ALIGN std::uint8_t tail[16] = {};
  for (std::size_t i = 0; i < wanted; ++i) tail[i] = p[i];
  return hn::LoadDup128(ByteTag(), tail);
}

// Codes first .. first + lanes() of a block.
HWY_INLINE Floats codes(const Unpacker& u, Block block, std::size_t first) {
  const UintTag du;
  const auto pairs =
      hn::BitCast(du, hn::TableLookupBytesOr0(block, hn::Load(ByteTag(), u.bytes + 4 * first)));
  const auto codes = hn::And(hn::Shr(pairs, hn::Load(du, u.shifts + first)), hn::Set(du, u.mask));
  return hn::ConvertTo(kF, hn::BitCast(IntTag(), codes));
}
#endif

// Where the codes of a row begin, and where those of the matrix end.
struct ByteRange {
  const std::uint8_t* begin;
  const std::uint8_t* end;
};
ByteRange row_bytes(const cpu::QuantizedRows& w, std::int64_t row) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(w.words);
  const std::int64_t stride = 4 * w.params.packed_cols(w.cols);
  return {first + row * stride, first + w.rows * stride};
}

// 32 codes, in two blocks, to values.
struct Decoder {
  const Unpacker& unpacker;
  Block low, high;
  Floats scale, bias;

  HWY_INLINE Floats at(Block block, std::size_t i) const {
    return fused(codes(unpacker, block, i), scale, bias);
  }

  template <class T>
  HWY_INLINE void write(T* out) const {
    for (std::size_t i = 0; i < kBlock; i += lanes()) store(at(low, i), out + i);
    for (std::size_t i = 0; i < kBlock; i += lanes()) store(at(high, i), out + kBlock + i);
  }
};

// For values that hold no NaN; `to` stores.
template <class T>
HWY_INLINE void write_without_nan(const Decoder& d, T* out, WholeStep to) {
  for (std::size_t i = 0; i < kBlock; i += lanes()) to.store(d.at(d.low, i), out + i);
  for (std::size_t i = 0; i < kBlock; i += lanes()) to.store(d.at(d.high, i), out + kBlock + i);
}
#if HWY_TARGET != HWY_SCALAR
// Rounded to nearest even in the upper half of each lane.
HWY_INLINE auto round_up_half(Floats v) {
  const UintTag du;
  const auto u = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  return hn::BitCast(hn::Repartition<std::uint16_t, UintTag>(),
                     hn::Add(hn::Add(u, hn::Set(du, 0x7fffu)), odd));
}
HWY_INLINE void store_pair(Floats a, Floats b, bf16* p, WholeStep to) {
  const hn::Repartition<std::uint16_t, FloatTag> d16;
  const auto pair = hn::ConcatOdd(d16, round_up_half(b), round_up_half(a));
  auto* out = reinterpret_cast<std::uint16_t*>(p);
  if (to.streams) return hn::Stream(pair, d16, out);
  hn::StoreU(pair, d16, out);
}
// Half the instructions of the general store.
HWY_INLINE void write_without_nan(const Decoder& d, bf16* out, WholeStep to) {
  if (lanes() == kBlock) return store_pair(d.at(d.low, 0), d.at(d.high, 0), out, to);
  for (std::size_t i = 0; i < kBlock; i += 2 * lanes()) {
    store_pair(d.at(d.low, i), d.at(d.low, i + lanes()), out + i, to);
    store_pair(d.at(d.high, i), d.at(d.high, i + lanes()), out + kBlock + i, to);
  }
}
#endif

template <class T, class S>
void decode_row(const cpu::QuantizedRows& w, std::int64_t row, const Unpacker& unpacker, T* out,
                WholeStep to) {
  const std::int64_t groups = w.params.groups(w.cols);
  const S* scales = static_cast<const S*>(w.scales) + row * groups;
  const S* biases = static_cast<const S*>(w.biases) + row * groups;
  const std::size_t step = 2 * static_cast<std::size_t>(w.params.bits);
  auto [at, end] = row_bytes(w, row);
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto scale = static_cast<float>(scales[g]), bias = static_cast<float>(biases[g]);
    const bool has_nan = !std::isfinite(scale) || !std::isfinite(bias);
    for (std::int32_t done = 0; done < w.params.group_size; done += 32, at += 2 * step, out += 32) {
      const Decoder decoder{unpacker, load_block(at, step, end), load_block(at + step, step, end), set(scale),
                            set(bias)};
      if (HWY_UNLIKELY(has_nan)) {
        decoder.write(out);
      } else {
        write_without_nan(decoder, out, to);
      }
    }
  }
}

template <class T, class S>
void decode_rows(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, T* out, bool is_large) {
  const Unpacker unpacker(w.params.bits);
  for (std::int64_t r = begin; r < end; ++r)
    decode_row<T, S>(w, r, unpacker, out + (r - begin) * w.cols, WholeStep{is_large});
  if (is_large) hwy::FlushStream();
}

template <class T, class S>
void dequantize_affine_forward(const HostCall& call) {
  const auto& p = call.params<QuantizeParams>();
  const cpu::QuantizedRows w = cpu::quantized_rows(call.reads[0], call.reads[1], call.reads[2], p.affine);
  T* out = call.write<T>(0);
  const bool is_large = streams(out, p.rows, p.cols);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    decode_rows<T, S>(w, begin, end, out + begin * p.cols, is_large);
  });
}

HWY_INLINE Floats round_half_away(Floats x) {
  const Floats whole = hn::Trunc(x);
  const auto is_far = hn::Ge(hn::Abs(hn::Sub(x, whole)), set(0.5f));
  return hn::Add(whole, hn::IfThenElseZero(is_far, hn::CopySign(set(1.0f), x)));
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
  const Floats scale = set(fit.scale), bias = set(fit.bias), largest = set(static_cast<float>(p.max_code()));
  for (std::size_t i = 0; i < size; i += lanes()) {
    const Floats exact = hn::Div(hn::Sub(load(w + i), bias), scale);
    const Floats code = rounding == Rounding::gpu ? round_half_away(exact) : hn::Round(exact);
    const auto whole = hn::ConvertTo(IntTag(), hn::Min(hn::Max(code, zero()), largest));
    hn::StoreU(hn::DemoteTo(hn::Rebind<std::uint8_t, FloatTag>(), whole),
               hn::Rebind<std::uint8_t, FloatTag>(), codes + i);
  }
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

template <class S>
void put(float value, Accumulate accumulate, void* out, std::int64_t i) {
  S* values = static_cast<S*>(out);
  if (values == nullptr) return;
  values[i] = S(accumulate == Accumulate::yes ? static_cast<float>(values[i]) + value : value);
}

template <class T, class S>
void reduce_row(const cpu::QuantizedRows& w, std::int64_t row, const Unpacker& unpacker, const T* dw,
                const cpu::ScaleGradients& out) {
  const std::int64_t groups = w.params.groups(w.cols);
  const std::size_t step = 2 * static_cast<std::size_t>(w.params.bits);
  auto [at, end] = row_bytes(w, row);
  for (std::int64_t g = 0; g < groups; ++g) {
    Floats products = zero(), sums = zero();
    for (std::int32_t done = 0; done < w.params.group_size; done += kBlock, at += step, dw += kBlock) {
      const Block block = load_block(at, step, end);
      for (std::size_t i = 0; i < kBlock; i += lanes()) {
        const Floats d = load(dw + i);
        products = hn::MulAdd(d, codes(unpacker, block, i), products);
        sums = hn::Add(sums, d);
      }
    }
    put<S>(sum_lanes(products), out.accumulate_scales, out.dscales, row * groups + g);
    put<S>(sum_lanes(sums), out.accumulate_biases, out.dbiases, row * groups + g);
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
  const cpu::QuantizedRows w{
      call.read<std::uint32_t>(1), nullptr, nullptr, dtype_of<S>(), p.rows, p.cols, p.affine};
  const T* dw = call.read<T>(0);
  const cpu::ScaleGradients out{p.wants_scales ? call.write<S>(0) : nullptr,
                                p.wants_biases ? call.write<S>(p.wants_scales) : nullptr, dtype_of<S>(),
                                Accumulate{p.accumulate_scales}, Accumulate{p.accumulate_biases}};
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
  switch (call.writes[1].dtype()) {
    case DType::bf16:
      return quantize_as<T, bf16>(call);
    case DType::f16:
      return quantize_as<T, f16>(call);
    default:
      return quantize_as<T, float>(call);
  }
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

QuantizedRows quantized_rows(const Buffer& codes, const Buffer& scales, const Buffer& biases,
                             AffineParams params) {
  return {codes.host_data<std::uint32_t>(),
          scales.host_bytes(),
          biases.host_bytes(),
          scales.dtype(),
          codes.shape().rows(),
          scales.shape().cols() * params.group_size,
          params};
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
