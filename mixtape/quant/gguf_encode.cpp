#include "mixtape/quant/gguf_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "mixtape/core/bf16.h"
#include "mixtape/core/error.h"
#include "mixtape/core/f16.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/quant/block_bytes.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {
namespace {

constexpr std::size_t kBlock = 32;

template <class T>
void store(std::byte*& out, T value) {
  std::memcpy(out, &value, sizeof value);
  out += sizeof value;
}

// Of one block of 32 codes.
using Codes = std::span<const std::uint8_t>;

// Byte j holds elements j and j + 16.
void store_nibbles(Codes codes, std::byte*& out) {
  for (std::size_t j = 0; j < kBlock / 2; ++j)
    store(out, static_cast<std::uint8_t>((codes[j] & 15u) | (codes[j + kBlock / 2] & 15u) << 4));
}

void store_q4_1(f16 scale, f16 bias, Codes codes, std::byte*& out) {
  store(out, scale);
  store(out, bias);
  store_nibbles(codes, out);
}

void store_q5_1(f16 scale, f16 bias, Codes codes, std::byte*& out) {
  store(out, scale);
  store(out, bias);
  std::uint32_t high = 0;  // bit j: the fifth of element j
  for (std::size_t j = 0; j < kBlock; ++j) high |= static_cast<std::uint32_t>(codes[j] >> 4 & 1u) << j;
  store(out, high);
  store_nibbles(codes, out);
}

void store_q8_0(f16 scale, std::span<const std::int8_t> codes, std::byte*& out) {
  store(out, scale);
  for (const std::int8_t code : codes) store(out, code);
}

// Of values without a bias: the extreme becomes 127.
void round_q8_0(std::span<const float> values, std::byte*& out) {
  float extreme = 0.0f;
  for (const float v : values) extreme = std::max(extreme, std::abs(v));
  const f16 scale(extreme / 127.0f);
  const float step = static_cast<float>(scale);
  std::int8_t codes[kBlock];
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float code = step > 0.0f ? std::round(values[i] / step) : 0.0f;
    codes[i] = static_cast<std::int8_t>(std::clamp(code, -128.0f, 127.0f));
  }
  store_q8_0(scale, codes, out);
}

std::vector<float> as_f32(const std::string& name, const Buffer& b) {
  return stored_as(DType::f32, name, b).to_vector<float>();
}

// One matrix, row by row.
class Encoder {
 public:
  Encoder(const std::string& name, const QuantizedWeight& weight, GgufLoss& loss)
      : name_(name),
        format_(weight.format),
        type_(gguf_type_of(format_)),
        loss_(loss),
        words_(weight.codes.to_vector<std::uint32_t>()),
        scales_(as_f32(name, weight.scales)),
        biases_(as_f32(name, weight.biases)),
        groups_(static_cast<std::size_t>(weight.scales.shape().cols())),
        codes_(groups_ * static_cast<std::size_t>(format_.group_size)) {}

  std::vector<std::byte> encode() {
    const auto block_bytes = static_cast<std::size_t>(gguf_type_info(type_).block_bytes);
    const std::size_t rows = scales_.size() / groups_;
    std::vector<std::byte> bytes(rows * codes_.size() / kBlock * block_bytes);
    std::byte* out = bytes.data();
    for (std::size_t row = 0; row < rows; ++row) encode_row(row, out);
    loss_.rounded_matrices += rounded_;
    return bytes;
  }

 private:
  void encode_row(std::size_t row, std::byte*& out) {
    const std::size_t words = words_.size() / (scales_.size() / groups_);
    unpack_codes(std::span(words_).subspan(row * words, words), format_.bits, codes_);
    const auto group_size = static_cast<std::size_t>(format_.group_size);
    for (std::size_t g = 0; g < groups_; ++g) {
      const float scale = scales_[row * groups_ + g], bias = biases_[row * groups_ + g];
      for (std::size_t at = g * group_size; at < (g + 1) * group_size; at += kBlock)
        encode_block({scale, bias}, Codes(codes_).subspan(at, kBlock), at == g * group_size, out);
    }
  }

  void encode_block(ScaleAndBias group, Codes codes, bool counts, std::byte*& out) {
    if (type_ == GgufType::q8_0) return encode_q8_0(group, codes, counts, out);
    const f16 scale = as_f16(group.scale, counts), bias = as_f16(group.bias, counts);
    type_ == GgufType::q4_1 ? store_q4_1(scale, bias, codes, out) : store_q5_1(scale, bias, codes, out);
  }

  void encode_q8_0(ScaleAndBias group, Codes codes, bool counts, std::byte*& out) {
    const std::int32_t middle = 1 << (format_.bits - 1);
    if (group.bias == -static_cast<float>(middle) * group.scale) {
      std::int8_t centred[kBlock];
      for (std::size_t i = 0; i < kBlock; ++i) centred[i] = static_cast<std::int8_t>(codes[i] - middle);
      return store_q8_0(as_f16(group.scale, counts), centred, out);
    }
    rounded_ = 1;
    float values[kBlock];
    for (std::size_t i = 0; i < kBlock; ++i) values[i] = decode(codes[i], group);
    round_q8_0(values, out);
  }

  f16 as_f16(float value, bool counts) {
    const f16 half(value);
    const float stored = static_cast<float>(half);
    require(std::isfinite(stored), name_, ": a scale or bias is ", value, ", expected one that f16 holds");
    if (!counts) return half;
    ++loss_.scales;
    if (stored == value) return half;
    ++loss_.inexact;
    loss_.largest =
        std::max(loss_.largest, std::abs(static_cast<double>(stored) / static_cast<double>(value) - 1.0));
    return half;
  }

  const std::string& name_;
  AffineParams format_;
  GgufType type_;
  GgufLoss& loss_;
  std::vector<std::uint32_t> words_;
  std::vector<float> scales_, biases_;
  std::size_t groups_;  // of a row
  std::vector<std::uint8_t> codes_;
  int rounded_ = 0;
};

DType float_dtype_of(GgufType type) {
  require(type == GgufType::f32 || type == GgufType::f16 || type == GgufType::bf16, "gguf: values as ", type,
          ", expected F32, F16 or BF16");
  return type == GgufType::f32 ? DType::f32 : type == GgufType::f16 ? DType::f16 : DType::bf16;
}

}  // namespace

GgufType gguf_type_of(const WeightFormat& format) {
  if (format.is_blocks()) return gguf_type(format.block);
  return format.bits <= 4 ? GgufType::q4_1 : format.bits == 5 ? GgufType::q5_1 : GgufType::q8_0;
}

std::vector<std::byte> gguf_bytes(const std::string& name, const QuantizedWeight& weight, GgufLoss& loss) {
  return format_of(weight).is_blocks() ? to_block_bytes(name, weight) : Encoder(name, weight, loss).encode();
}

std::vector<std::byte> gguf_bytes(const std::string& name, GgufType type, const Buffer& values) {
  const Buffer stored = stored_as(float_dtype_of(type), name, values);
  std::vector<std::byte> bytes(stored.bytes());
  stored.read_bytes(bytes.data());
  return bytes;
}

std::vector<std::byte> in_gguf_order(std::vector<std::byte> bytes, std::int64_t rows,
                                     std::int64_t interleaved_heads) {
  if (interleaved_heads == 0) return bytes;
  const std::size_t row_bytes = bytes.size() / static_cast<std::size_t>(rows);
  std::vector<std::byte> ordered(bytes.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto to = static_cast<std::size_t>(gguf_row(row, rows, interleaved_heads));
    std::memcpy(ordered.data() + to * row_bytes, bytes.data() + static_cast<std::size_t>(row) * row_bytes,
                row_bytes);
  }
  return ordered;
}

}  // namespace mixtape
