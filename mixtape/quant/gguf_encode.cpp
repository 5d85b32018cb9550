#include "mixtape/quant/gguf_encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/core/f16.h"
#include "mixtape/io/gguf_block_parts.h"
#include "mixtape/io/gguf_model.h"
#include "mixtape/quant/block_bytes.h"
#include "mixtape/quant/on_host.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {
namespace {

constexpr std::size_t kBlock = 32;
constexpr std::int32_t kZeroOfQ8 = 128;  // the code of 0

std::size_t as_size(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of values without a bias: the extreme becomes 127.
void round_q8_0(std::span<const float> values, GgufBlock& block) {
  float extreme = 0.0f;
  for (const float v : values) extreme = std::max(extreme, std::abs(v));
  block.scale = f16(extreme / 127.0f);
  const float step = static_cast<float>(block.scale);
  for (std::size_t i = 0; i < kBlock; ++i) {
    const float code = step > 0.0f ? std::round(values[i] / step) : 0.0f;
    block.codes[i] =
        static_cast<std::uint8_t>(kZeroOfQ8 + static_cast<std::int32_t>(std::clamp(code, -128.0f, 127.0f)));
  }
}

std::vector<float> as_f32(const std::string& name, const Buffer& b) {
  return stored_as(DType::f32, name, b).to_vector<float>();
}

// One matrix: scales and biases of all groups first, in their order, then rows of blocks.
class Encoder {
 public:
  Encoder(const std::string& name, const QuantizedWeight& weight, GgufLoss& loss)
      : name_(name),
        format_(weight.format),
        type_(gguf_type_info(gguf_type_of(format_))),
        loss_(loss),
        words_(on_host(weight.codes)),
        scales_(as_f32(name, weight.scales)),
        biases_(as_f32(name, weight.biases)),
        groups_(as_size(weight.scales.shape().cols())),
        cols_(groups_ * as_size(format_.group_size)) {}

  Buffer encode() {
    bool rounded = false;
    for (std::size_t g = 0; g < scales_.size(); ++g) rounded = !take_group(g) || rounded;
    loss_.rounded_matrices += rounded;
    const auto rows = static_cast<std::int64_t>(scales_.size() / groups_);
    const std::int64_t row_bytes = static_cast<std::int64_t>(cols_ / kBlock) * type_.block_bytes;
    const Buffer out = Device::cpu().alloc_uninitialized(DType::u8, {rows * row_bytes});
#pragma omp parallel for schedule(dynamic, 16) if (out.bytes() > 1 << 16)
    for (std::int64_t row = 0; row < rows; ++row)
      encode_row(as_size(row), {out.host_bytes() + row * row_bytes, as_size(row_bytes)});
    return out;
  }

 private:
  bool is_q8() const { return type_.type == GgufType::q8_0; }
  std::int32_t middle() const { return 1 << (format_.bits - 1); }
  bool is_centred(std::size_t g) const { return biases_[g] == -static_cast<float>(middle()) * scales_[g]; }

  // False where the type can't hold the group's bias.
  bool take_group(std::size_t g) {
    const bool holds = !is_q8() || is_centred(g);
    stored_scales_.push_back(holds ? as_f16(scales_[g]) : f16());
    stored_biases_.push_back(is_q8() ? f16() : as_f16(biases_[g]));
    return holds;
  }

  void encode_row(std::size_t row, std::span<std::byte> out) const {
    const std::size_t words = cols_ / kPackedCodes * as_size(format_.bits),
                      bytes = as_size(type_.block_bytes);
    std::vector<std::uint8_t> codes(cols_);
    unpack_codes({words_.host_data<std::uint32_t>() + row * words, words}, format_.bits, codes);
    GgufBlock block;
    for (std::size_t i = 0; i < cols_ / kBlock; ++i) {
      const std::size_t group = row * groups_ + i * kBlock / as_size(format_.group_size);
      fill_block(group, std::span<const std::uint8_t>(codes).subspan(i * kBlock, kBlock), block);
      pack_gguf_block(type_.type, block, out.subspan(i * bytes, bytes));
    }
  }

  void fill_block(std::size_t group, std::span<const std::uint8_t> codes, GgufBlock& block) const {
    if (is_q8() && !is_centred(group)) {
      float values[kBlock];
      for (std::size_t i = 0; i < kBlock; ++i) values[i] = decode(codes[i], {scales_[group], biases_[group]});
      return round_q8_0(values, block);
    }
    block.scale = stored_scales_[group];
    block.bias = stored_biases_[group];
    const std::int32_t shift = is_q8() ? kZeroOfQ8 - middle() : 0;
    for (std::size_t i = 0; i < kBlock; ++i) block.codes[i] = static_cast<std::uint8_t>(codes[i] + shift);
  }

  f16 as_f16(float value) {
    const f16 half(value);
    const float stored = static_cast<float>(half);
    require(std::isfinite(stored), name_, ": a scale or bias is ", value, ", expected one that f16 holds");
    ++loss_.scales;
    if (stored == value) return half;
    ++loss_.inexact;
    loss_.largest =
        std::max(loss_.largest, std::abs(static_cast<double>(stored) / static_cast<double>(value) - 1.0));
    return half;
  }

  const std::string& name_;
  AffineParams format_;
  const GgufTypeInfo& type_;
  GgufLoss& loss_;
  Buffer words_;
  std::vector<float> scales_, biases_;
  std::vector<f16> stored_scales_, stored_biases_;
  std::size_t groups_, cols_;  // of a row
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

Buffer gguf_bytes(const std::string& name, const QuantizedWeight& weight, GgufLoss& loss) {
  return format_of(weight).is_blocks() ? to_block_bytes(name, weight) : Encoder(name, weight, loss).encode();
}

Buffer gguf_bytes(const std::string& name, GgufType type, const Buffer& values) {
  return on_host(stored_as(float_dtype_of(type), name, values));
}

Buffer in_gguf_order(const Buffer& bytes, std::int64_t rows, std::int64_t interleaved_heads) {
  if (interleaved_heads == 0) return bytes;
  const std::size_t row_bytes = bytes.bytes() / as_size(rows);
  const Buffer ordered = Device::cpu().alloc_uninitialized(bytes.dtype(), bytes.shape());
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto to = as_size(gguf_row(row, rows, interleaved_heads));
    std::memcpy(ordered.host_bytes() + to * row_bytes, bytes.host_bytes() + as_size(row) * row_bytes,
                row_bytes);
  }
  return ordered;
}

}  // namespace mixtape
