#include "mixtape/io/gguf_block_parts.h"

#include <algorithm>
#include <cstring>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

// Fields as the layouts below name them. A layout is written once and walked in both directions.
template <class Code>
struct Fields {
  std::span<Code> codes;
  std::uint16_t scale = 0, bias = 0;
  std::array<std::uint32_t, 16> sub_scales{}, sub_biases{};
};

struct Reader {
  const std::byte* p;
  // `width` bits of a byte are those of a field from bit `from` on.
  template <class Field>
  void bits(std::size_t byte, std::size_t shift, unsigned width, Field& field, unsigned from = 0) const {
    const auto found = std::to_integer<std::uint32_t>(p[byte]) >> shift & ((1u << width) - 1u);
    field = static_cast<Field>(field | found << from);
  }
  void half(std::size_t byte, std::uint16_t& field) const { std::memcpy(&field, p + byte, sizeof field); }
};

struct Writer {
  std::byte* p;  // zeros
  void bits(std::size_t byte, std::size_t shift, unsigned width, std::uint32_t field,
            unsigned from = 0) const {
    p[byte] |= static_cast<std::byte>((field >> from & ((1u << width) - 1u)) << shift);
  }
  void half(std::size_t byte, std::uint16_t field) const { std::memcpy(p + byte, &field, sizeof field); }
};

// Types of 32: byte j holds the low four bits of elements j and j + 16.
template <class Io, class F>
void nibbles(const Io& io, std::size_t at, F& f) {
  for (std::size_t i = 0; i < 32; ++i) io.bits(at + i % 16, i / 16 * 4, 4, f.codes[i]);
}
template <class Io, class F>
void fifth_bits(const Io& io, std::size_t at, F& f) {
  for (std::size_t i = 0; i < 32; ++i) io.bits(at + i / 8, i % 8, 1, f.codes[i], 4);
}

// Types of 256: 64 neighbours in 32 bytes of nibbles; 128 in 32 bytes of pairs; bit i/32 of 32 bytes.
template <class Io, class F>
void k_nibbles(const Io& io, std::size_t at, F& f) {
  for (std::size_t i = 0; i < 256; ++i) io.bits(at + i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4, f.codes[i]);
}
template <class Io, class F>
void k_pairs(const Io& io, std::size_t at, F& f, unsigned from) {
  for (std::size_t i = 0; i < 256; ++i)
    io.bits(at + i / 128 * 32 + i % 32, i / 32 % 4 * 2, 2, f.codes[i], from);
}
template <class Io, class F>
void k_ones(const Io& io, std::size_t at, F& f, unsigned from) {
  for (std::size_t i = 0; i < 256; ++i) io.bits(at + i % 32, i / 32, 1, f.codes[i], from);
}

// Eight pairs of six bits in 12 bytes: the low four bits of the last four pairs and, above the first four's, the rest.
template <class Io, class F>
void six_bit_pairs(const Io& io, std::size_t at, F& f) {
  for (std::size_t i = 0; i < 4; ++i) {
    io.bits(at + i, 0, 6, f.sub_scales[i]);
    io.bits(at + i + 4, 0, 6, f.sub_biases[i]);
    io.bits(at + i + 8, 0, 4, f.sub_scales[i + 4]);
    io.bits(at + i + 8, 4, 4, f.sub_biases[i + 4]);
    io.bits(at + i, 6, 2, f.sub_scales[i + 4], 4);
    io.bits(at + i + 4, 6, 2, f.sub_biases[i + 4], 4);
  }
}

template <class Io, class F>
void q2_k(const Io& io, F& f) {
  for (std::size_t i = 0; i < 16; ++i) {
    io.bits(i, 0, 4, f.sub_scales[i]);
    io.bits(i, 4, 4, f.sub_biases[i]);
  }
  k_pairs(io, 16, f, 0);
  io.half(80, f.scale);
  io.half(82, f.bias);
}

template <class Io, class F>
void q3_k(const Io& io, F& f) {
  k_ones(io, 0, f, 2);
  k_pairs(io, 32, f, 0);
  for (std::size_t i = 0; i < 16; ++i) {
    io.bits(96 + i % 8, i / 8 * 4, 4, f.sub_scales[i]);
    io.bits(104 + i % 4, i / 4 * 2, 2, f.sub_scales[i], 4);
  }
  io.half(108, f.scale);
}

template <class Io, class F>
void q6_k(const Io& io, F& f) {
  for (std::size_t i = 0; i < 256; ++i)
    io.bits(i / 128 * 64 + i / 32 % 2 * 32 + i % 32, i / 64 % 2 * 4, 4, f.codes[i]);
  k_pairs(io, 128, f, 4);
  for (std::size_t i = 0; i < 16; ++i) io.bits(192 + i, 0, 8, f.sub_scales[i]);
  io.half(208, f.scale);
}

template <class Io, class F>
void walk(GgufType type, const Io& io, F& f) {
  const bool has_bias =
      type == GgufType::q4_1 || type == GgufType::q5_1 || type == GgufType::q4_k || type == GgufType::q5_k;
  if (type == GgufType::q2_k) return q2_k(io, f);
  if (type == GgufType::q3_k) return q3_k(io, f);
  if (type == GgufType::q6_k) return q6_k(io, f);
  io.half(0, f.scale);
  if (has_bias) io.half(2, f.bias);
  const std::size_t at = has_bias ? 4 : 2;
  switch (type) {
    case GgufType::q4_0:
    case GgufType::q4_1:
      return nibbles(io, at, f);
    case GgufType::q5_0:
    case GgufType::q5_1:
      fifth_bits(io, at, f);
      return nibbles(io, at + 4, f);
    case GgufType::q8_0:
      for (std::size_t i = 0; i < 32; ++i) io.bits(at + i, 0, 8, f.codes[i]);
      return;
    case GgufType::q4_k:
      six_bit_pairs(io, at, f);
      return k_nibbles(io, at + 12, f);
    case GgufType::q5_k:
      six_bit_pairs(io, at, f);
      k_ones(io, at + 12, f, 4);
      return k_nibbles(io, at + 44, f);
    default:
      fail(ErrorCode::invalid_argument, "gguf: a block of ", type, ", expected a quantized type");
  }
}

const GgufTypeInfo& checked(GgufType type, std::size_t bytes) {
  const GgufTypeInfo& info = gguf_type_info(type);
  const auto wanted = static_cast<std::size_t>(info.block_bytes);
  require(bytes == wanted, "gguf: a block of ", type, " in ", bytes, " bytes, expected ", wanted);
  return info;
}

bool is_k(const GgufTypeInfo& info) { return info.block_elements == 256; }

// Where a field isn't the number itself: Q3_K counts sub-scales from -32, Q6_K and Q8_0 have bytes with a sign, and
// types "K" subtract their bias.
constexpr std::uint16_t kSign = 0x8000;
constexpr std::uint8_t kByteSign = 0x80;
constexpr std::size_t kSignedCodes = 32, kSignedCodesAt = 2;  // of Q8_0

}  // namespace

GgufBlock unpack_gguf_block(GgufType type, std::span<const std::byte> bytes) {
  const GgufTypeInfo& info = checked(type, bytes.size());
  GgufBlock block;
  Fields<std::uint8_t> f{block.codes};
  walk(type, Reader{bytes.data()}, f);
  for (std::size_t i = 0; i < kSignedCodes && type == GgufType::q8_0; ++i) block.codes[i] ^= kByteSign;
  block.scale.bits = f.scale;
  block.bias.bits = static_cast<std::uint16_t>(is_k(info) ? f.bias ^ kSign : f.bias);
  for (std::size_t i = 0; i < 16; ++i) {
    const std::uint32_t s = f.sub_scales[i];
    block.sub_scales[i] = type == GgufType::q6_k ? static_cast<std::int8_t>(s) : static_cast<std::int32_t>(s);
    if (type == GgufType::q3_k) block.sub_scales[i] -= 32;
    block.sub_biases[i] = static_cast<std::int32_t>(f.sub_biases[i]);
  }
  return block;
}

void pack_gguf_block(GgufType type, const GgufBlock& block, std::span<std::byte> bytes) {
  const GgufTypeInfo& info = checked(type, bytes.size());
  Fields<const std::uint8_t> f{block.codes};
  f.scale = block.scale.bits;
  f.bias = static_cast<std::uint16_t>(is_k(info) ? block.bias.bits ^ kSign : block.bias.bits);
  for (std::size_t i = 0; i < 16 && is_k(info); ++i) {
    f.sub_scales[i] = static_cast<std::uint32_t>(block.sub_scales[i] + (type == GgufType::q3_k ? 32 : 0));
    f.sub_biases[i] = static_cast<std::uint32_t>(block.sub_biases[i]);
  }
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  walk(type, Writer{bytes.data()}, f);
  for (std::size_t i = 0; i < kSignedCodes && type == GgufType::q8_0; ++i)
    bytes[kSignedCodesAt + i] ^= std::byte{kByteSign};
}

}  // namespace mixtape
