#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/ops/quantize/quantize_cpu.cpp"
#include "mixtape/ops/quantize/quantize_cpu.h"

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/quantize/quantize_params.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
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

  // Codes first .. first + lanes() of the block in `packed`.
  HWY_INLINE Floats codes(hn::Vec<ByteTag> packed, std::size_t first) const {
    const UintTag du;
    const auto pairs =
        hn::BitCast(du, hn::TableLookupBytesOr0(packed, hn::Load(ByteTag(), bytes + 4 * first)));
    const auto codes = hn::And(hn::Shr(pairs, hn::Load(du, shifts + first)), hn::Set(du, mask));
    return hn::ConvertTo(kF, hn::BitCast(IntTag(), codes));
  }
};

// The `wanted` bytes of a block in every 128-bit part of a vector, without a read at or after `end`.
HWY_INLINE hn::Vec<ByteTag> load_block(const std::uint8_t* p, std::size_t wanted, const std::uint8_t* end) {
  if (HWY_LIKELY(end - p >= 16)) return hn::LoadDup128(ByteTag(), p);
  HWY_ALIGN std::uint8_t tail[16] = {};
  for (std::size_t i = 0; i < wanted; ++i) tail[i] = p[i];
  return hn::LoadDup128(ByteTag(), tail);
}

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

template <class T, class S>
void decode_row(const cpu::QuantizedRows& w, std::int64_t row, const Unpacker& unpacker, T* out) {
  const std::int64_t groups = w.params.groups(w.cols);
  const S* scales = static_cast<const S*>(w.scales) + row * groups;
  const S* biases = static_cast<const S*>(w.biases) + row * groups;
  const std::size_t step = 2 * static_cast<std::size_t>(w.params.bits);
  auto [at, end] = row_bytes(w, row);
  for (std::int64_t g = 0; g < groups; ++g) {
    const Floats scale = set(static_cast<float>(scales[g]));
    const Floats bias = set(static_cast<float>(biases[g]));
    for (std::int32_t done = 0; done < w.params.group_size; done += kBlock, at += step, out += kBlock) {
      const auto packed = load_block(at, step, end);
      for (std::size_t i = 0; i < kBlock; i += lanes()) {
        store(fused(unpacker.codes(packed, i), scale, bias), out + i);
      }
    }
  }
}

template <class T, class S>
void decode_rows(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, T* out) {
  const Unpacker unpacker(w.params.bits);
  for (std::int64_t r = begin; r < end; ++r) decode_row<T, S>(w, r, unpacker, out + (r - begin) * w.cols);
}

template <class T, class S>
void dequantize_affine_forward(const HostCall& call) {
  const auto& p = call.params<QuantizeParams>();
  const cpu::QuantizedRows w = cpu::quantized_rows(call.reads[0], call.reads[1], call.reads[2], p.affine);
  T* out = call.write<T>(0);
  cpu::parallel_for(p.rows, cpu::row_grain(p.cols), [&](std::int64_t begin, std::int64_t end) {
    decode_rows<T, S>(w, begin, end, out + begin * p.cols);
  });
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
      const auto packed = load_block(at, step, end);
      for (std::size_t i = 0; i < kBlock; i += lanes()) {
        const Floats d = load(dw + i);
        products = hn::MulAdd(d, unpacker.codes(packed, i), products);
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
    decode_rows<T, S>(w, begin, end, out);                                                     \
  }                                                                                            \
  [[maybe_unused]] void reduce_rows_##t##_##s(const cpu::QuantizedRows& w, std::int64_t begin, \
                                              std::int64_t end, const T* dw,                   \
                                              const cpu::ScaleGradients& out) {                \
    reduce_all<T, S>(w, begin, end, dw, out);                                                  \
  }
MIXTAPE_QUANTIZE_KERNELS(f32, float, f32, float)
MIXTAPE_QUANTIZE_KERNELS(f32, float, bf16, bf16)
MIXTAPE_QUANTIZE_KERNELS(bf16, bf16, f32, float)
MIXTAPE_QUANTIZE_KERNELS(bf16, bf16, bf16, bf16)
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

// Quantizes row r; returns the column of the first weight that cannot be, or kNone.
template <class T, class S>
std::int64_t quantize_one(const HostCall& call, const QuantizeParams& p, std::int64_t r,
                          std::vector<float>& scratch) {
  const std::span<const float> w = widen(call.read<T>(0) + r * p.cols, p.cols, scratch);
  const std::int64_t bad = find_non_finite(w, p.affine.group_size);
  if (bad >= 0) return bad;
  const std::int64_t groups = p.affine.groups(p.cols), words = p.affine.packed_cols(p.cols);
  std::vector<float> scales(static_cast<std::size_t>(groups)), biases(scales.size());
  quantize_row(w, p.affine, p.rounding,
               {call.write<std::uint32_t>(0) + r * words, static_cast<std::size_t>(words)}, scales, biases);
  const std::int64_t overflow = std::min(put_row(scales, call.write<S>(1) + r * groups),
                                         put_row(biases, call.write<S>(2) + r * groups));
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
    std::vector<float> scratch;
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

#define MIXTAPE_EXPORT_QUANTIZE(t, s)                             \
  MIXTAPE_REGISTER_SIMD_ONE(dequantize_affine_forward_##t##_##s)  \
  MIXTAPE_REGISTER_SIMD_ONE(dequantize_affine_backward_##t##_##s) \
  HWY_EXPORT(decode_rows_##t##_##s);                              \
  HWY_EXPORT(reduce_rows_##t##_##s);
MIXTAPE_EXPORT_QUANTIZE(f32, f32)
MIXTAPE_EXPORT_QUANTIZE(f32, bf16)
MIXTAPE_EXPORT_QUANTIZE(bf16, f32)
MIXTAPE_EXPORT_QUANTIZE(bf16, bf16)

namespace cpu {

QuantizedRows quantized_rows(const Buffer& codes, const Buffer& scales, const Buffer& biases,
                             AffineParams params) {
  if (scales.dtype() != DType::f32 && scales.dtype() != DType::bf16) {
    fail(ErrorCode::not_supported, "quantized_rows: scales are ", scales.dtype(), ", expected f32 or bf16");
  }
  return {codes.host_data<std::uint32_t>(),
          scales.host_bytes(),
          biases.host_bytes(),
          scales.dtype(),
          codes.shape().rows(),
          scales.shape().cols() * params.group_size,
          params};
}

void dequantize_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, float* out) {
  if (w.scale_dtype == DType::f32) return HWY_DYNAMIC_DISPATCH(decode_rows_f32_f32)(w, begin, end, out);
  HWY_DYNAMIC_DISPATCH(decode_rows_f32_bf16)(w, begin, end, out);
}

void dequantize_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, bf16* out) {
  if (w.scale_dtype == DType::f32) return HWY_DYNAMIC_DISPATCH(decode_rows_bf16_f32)(w, begin, end, out);
  HWY_DYNAMIC_DISPATCH(decode_rows_bf16_bf16)(w, begin, end, out);
}

void reduce_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const float* dw,
                 const ScaleGradients& out) {
  if (out.dtype == DType::f32) return HWY_DYNAMIC_DISPATCH(reduce_rows_f32_f32)(w, begin, end, dw, out);
  HWY_DYNAMIC_DISPATCH(reduce_rows_f32_bf16)(w, begin, end, dw, out);
}

void reduce_rows(const QuantizedRows& w, std::int64_t begin, std::int64_t end, const bf16* dw,
                 const ScaleGradients& out) {
  if (out.dtype == DType::f32) return HWY_DYNAMIC_DISPATCH(reduce_rows_bf16_f32)(w, begin, end, dw, out);
  HWY_DYNAMIC_DISPATCH(reduce_rows_bf16_bf16)(w, begin, end, dw, out);
}

}  // namespace cpu
}  // namespace mixtape
#endif
