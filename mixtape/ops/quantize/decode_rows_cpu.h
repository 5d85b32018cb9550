// Rows of affine codes to values, for host kernels. Compiled once per instruction set, like
// backend/cpu/simd-inl.h.
#if defined(MIXTAPE_OPS_DECODE_ROWS_CPU_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MIXTAPE_OPS_DECODE_ROWS_CPU_H_
#undef MIXTAPE_OPS_DECODE_ROWS_CPU_H_
#else
#define MIXTAPE_OPS_DECODE_ROWS_CPU_H_
#endif

#include <cmath>

#include "mixtape/backend/cpu/simd-inl.h"
#include "mixtape/ops/quantize/quantize_cpu.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

inline constexpr std::size_t kBlock = 16;  // codes that are unpacked at a time: 2*bits bytes

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
inline ByteRange row_bytes(const cpu::QuantizedRows& w, std::int64_t row) {
  const auto* first = reinterpret_cast<const std::uint8_t*>(w.words);
  const std::int64_t stride = 4 * w.params.packed_cols(w.cols);
  return {first + row * stride, first + w.rows * stride};
}

// 16 codes in a block, and what their group says.
struct Half {
  const Unpacker& unpacker;
  Block block;
  Floats scale, bias;

  HWY_INLINE Floats at(std::size_t i) const { return fused(codes(unpacker, block, i), scale, bias); }
};

// 32 codes, in two blocks, to values.
struct Decoder {
  Half low, high;

  template <class T>
  HWY_INLINE void write(T* out) const {
    for (std::size_t i = 0; i < kBlock; i += lanes()) store(low.at(i), out + i);
    for (std::size_t i = 0; i < kBlock; i += lanes()) store(high.at(i), out + kBlock + i);
  }
};

// For values that hold no NaN; `to` stores.
template <class T>
HWY_INLINE void write_without_nan(const Decoder& d, T* out, WholeStep to) {
  for (std::size_t i = 0; i < kBlock; i += lanes()) to.store(d.low.at(i), out + i);
  for (std::size_t i = 0; i < kBlock; i += lanes()) to.store(d.high.at(i), out + kBlock + i);
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
  if (lanes() == kBlock) return store_pair(d.low.at(0), d.high.at(0), out, to);
  for (std::size_t i = 0; i < kBlock; i += 2 * lanes()) {
    store_pair(d.low.at(i), d.low.at(i + lanes()), out + i, to);
    store_pair(d.high.at(i), d.high.at(i + lanes()), out + kBlock + i, to);
  }
}
#endif

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
// Codes of at most kTableBits choose among the values of a table that is made once for each group. A lane's
// choice looks at more bits than a code has, so the table repeats.
inline constexpr std::int32_t kTableBits = 4;
inline constexpr hn::ScalableTag<std::uint16_t> kHalves;

// Where the 32 codes of two blocks are, for lanes of 16 bits.
struct HalfUnpacker {
  HWY_ALIGN std::uint8_t bytes[4 * kBlock];
  HWY_ALIGN std::uint16_t shifts[2 * kBlock];

  explicit HalfUnpacker(std::int32_t bits) {
    for (std::size_t i = 0; i < 2 * kBlock; ++i) {
      const std::size_t first = i * static_cast<std::size_t>(bits);
      const std::size_t last = first + static_cast<std::size_t>(bits) - 1;
      bytes[2 * i] = static_cast<std::uint8_t>(first / 8);
      bytes[2 * i + 1] = static_cast<std::uint8_t>(last / 8 != first / 8 ? last / 8 : 0x80);
      shifts[i] = static_cast<std::uint16_t>(first % 8);
    }
  }
};

HWY_INLINE Floats values_of_codes(const Unpacker& u, float scale, float bias) {
  const auto codes = hn::And(hn::Iota(UintTag(), 0), hn::Set(UintTag(), u.mask));
  return fused(hn::ConvertTo(kF, hn::BitCast(IntTag(), codes)), set(scale), set(bias));
}

template <class T>
struct Table {
  Table(const Unpacker& u, float scale, float bias) {
    const auto half = narrow(values_of_codes(u, scale, bias), T());
    values = hn::Combine(kHalves, half, half);
  }
  HWY_INLINE void write(const Unpacker&, const HalfUnpacker& u, const std::uint8_t* at, std::size_t step,
                        const std::uint8_t* end, T* out, WholeStep to) const {
    const auto pairs = hn::BitCast(
        kHalves, hn::TableLookupBytesOr0(load_block(at, 2 * step, end), hn::Load(ByteTag(), u.bytes)));
    const auto choice = _mm512_srlv_epi16(pairs.raw, hn::Load(kHalves, u.shifts).raw);
    const hn::Vec<hn::ScalableTag<std::uint16_t>> chosen{_mm512_permutexvar_epi16(choice, values.raw)};
    auto* words = reinterpret_cast<std::uint16_t*>(out);
    if (to.streams) return hn::Stream(chosen, kHalves, words);
    hn::StoreU(chosen, kHalves, words);
  }
  hn::Vec<hn::ScalableTag<std::uint16_t>> values;
};
template <>
struct Table<float> {
  Table(const Unpacker& u, float scale, float bias) : values(values_of_codes(u, scale, bias)) {}
  HWY_INLINE void write_block(const Unpacker& u, Block block, float* out, WholeStep to) const {
    const auto pairs = hn::BitCast(UintTag(), hn::TableLookupBytesOr0(block, hn::Load(ByteTag(), u.bytes)));
    const auto choice = hn::Shr(pairs, hn::Load(UintTag(), u.shifts));
    to.store(Floats{_mm512_permutexvar_ps(choice.raw, values.raw)}, out);
  }
  HWY_INLINE void write(const Unpacker& u, const HalfUnpacker&, const std::uint8_t* at, std::size_t step,
                        const std::uint8_t* end, float* out, WholeStep to) const {
    write_block(u, load_block(at, step, end), out, to);
    write_block(u, load_block(at + step, step, end), out + kBlock, to);
  }
  Floats values;
};

template <class T, class S>
void decode_row_by_table(const cpu::QuantizedRows& w, std::int64_t row, const Unpacker& unpacker,
                         const HalfUnpacker& halves, T* out, WholeStep to) {
  const std::int64_t groups = w.params.groups(w.cols);
  const S* scales = static_cast<const S*>(w.scales) + row * groups;
  const S* biases = static_cast<const S*>(w.biases) + row * groups;
  const std::size_t step = 2 * static_cast<std::size_t>(w.params.bits);
  auto [at, end] = row_bytes(w, row);
  for (std::int64_t g = 0; g < groups; ++g) {
    const Table<T> table(unpacker, static_cast<float>(scales[g]), static_cast<float>(biases[g]));
    for (std::int32_t done = 0; done < w.params.group_size; done += 32, at += 2 * step, out += 32) {
      table.write(unpacker, halves, at, step, end, out, to);
    }
  }
}
#endif

template <class T>
HWY_INLINE void write_half_pair(const Decoder& decoder, bool has_nan, T* out, WholeStep to) {
  if (HWY_UNLIKELY(has_nan)) return decoder.write(out);
  write_without_nan(decoder, out, to);
}

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
      const Decoder decoder{{unpacker, load_block(at, step, end), set(scale), set(bias)},
                            {unpacker, load_block(at + step, step, end), set(scale), set(bias)}};
      write_half_pair(decoder, has_nan, out, to);
    }
  }
}

// Of groups of 16: each half has a scale and a bias of its own.
template <class T, class S>
void decode_row_of_halves(const cpu::QuantizedRows& w, std::int64_t row, const Unpacker& unpacker, T* out,
                          WholeStep to) {
  const std::int64_t groups = w.params.groups(w.cols);
  const S* scales = static_cast<const S*>(w.scales) + row * groups;
  const S* biases = static_cast<const S*>(w.biases) + row * groups;
  const std::size_t step = 2 * static_cast<std::size_t>(w.params.bits);
  auto [at, end] = row_bytes(w, row);
  for (std::int64_t g = 0; g < groups; g += 2, at += 2 * step, out += 32) {
    float scale[2], bias[2];
    bool has_nan = false;
    for (int half = 0; half < 2; ++half) {
      scale[half] = static_cast<float>(scales[g + half]);
      bias[half] = static_cast<float>(biases[g + half]);
      has_nan |= !std::isfinite(scale[half]) || !std::isfinite(bias[half]);
    }
    const Decoder decoder{{unpacker, load_block(at, step, end), set(scale[0]), set(bias[0])},
                          {unpacker, load_block(at + step, step, end), set(scale[1]), set(bias[1])}};
    write_half_pair(decoder, has_nan, out, to);
  }
}

template <class T, class S>
void decode_rows(const cpu::QuantizedRows& w, std::int64_t begin, std::int64_t end, T* out, bool is_large) {
  const Unpacker unpacker(w.params.bits);
  const WholeStep to{is_large};
  if (w.params.group_size == static_cast<std::int32_t>(kBlock)) {
    for (std::int64_t r = begin; r < end; ++r)
      decode_row_of_halves<T, S>(w, r, unpacker, out + (r - begin) * w.cols, to);
    return;
  }
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if (w.params.bits <= kTableBits) {
    const HalfUnpacker halves(w.params.bits);
    for (std::int64_t r = begin; r < end; ++r) {
      decode_row_by_table<T, S>(w, r, unpacker, halves, out + (r - begin) * w.cols, to);
    }
    return;
  }
#endif
  for (std::int64_t r = begin; r < end; ++r) decode_row<T, S>(w, r, unpacker, out + (r - begin) * w.cols, to);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // include guard per target
