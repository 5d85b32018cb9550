#include "mixtape/quant/block_bytes.h"

#include <algorithm>
#include <cmath>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_block_parts.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// The parts behind the codes on the host; empty where the format has none.
struct HostScales {
  std::vector<float> scales, biases, sub_scales, sub_biases;
};

std::vector<float> values_of(const Buffer& b) { return b ? b.to_vector<float>() : std::vector<float>(); }

f16 checked_f16(const std::string& name, const char* what, float value) {
  const f16 rounded(value);
  require(std::isfinite(static_cast<float>(rounded)), name, ": ", what, " is ", value,
          ", expected what f16 holds");
  return rounded;
}

// Blocks of one weight, one after the other.
class Packing {
 public:
  Packing(const std::string& name, const QuantizedWeight& weight)
      : name_(name),
        format_(block_format(weight.blocks.type)),
        values_{values_of(weight.blocks.scales), values_of(weight.blocks.biases),
                values_of(weight.blocks.sub_scales), values_of(weight.blocks.sub_biases)},
        words_(weight.codes.to_vector<std::uint32_t>()) {}

  std::vector<std::byte> run() {
    const GgufType type = gguf_type(format_.type);
    const std::size_t bytes = index(gguf_type_info(type).block_bytes);
    std::vector<std::byte> out(values_.scales.size() * bytes);
    for (std::size_t b = 0; b < values_.scales.size(); ++b)
      pack_gguf_block(type, block(b), std::span(out).subspan(b * bytes, bytes));
    return out;
  }

 private:
  GgufBlock block(std::size_t b) const {
    GgufBlock block;
    block.scale = checked_f16(name_, "scale of a block", values_.scales[b]);
    if (format_.has_biases) block.bias = checked_f16(name_, "bias of a block", values_.biases[b]);
    take(values_.sub_scales, b, block.sub_scales);
    take(values_.sub_biases, b, block.sub_biases);
    const std::size_t count = index(format_.block_elements()),
                      words = count / kPackedCodes * index(format_.affine.bits);
    unpack_codes(std::span(words_).subspan(b * words, words), format_.affine.bits,
                 std::span(block.codes).first(count));
    return block;
  }
  void take(const std::vector<float>& whole, std::size_t b, std::array<std::int32_t, 16>& to) const {
    const std::size_t groups = index(format_.groups);
    for (std::size_t j = 0; j < groups && !whole.empty(); ++j)
      to[j] = static_cast<std::int32_t>(whole[b * groups + j]);
  }

  const std::string& name_;
  const BlockFormat& format_;
  HostScales values_;
  std::vector<std::uint32_t> words_;
};

}  // namespace

GgufType gguf_type(BlockType type) {
  const std::string name = block_format(type).name;
  for (std::uint32_t id = 0;; ++id) {
    if (const GgufTypeInfo* info = find_gguf_type(id); info != nullptr && name == info->name)
      return info->type;
  }
}

std::vector<std::byte> to_block_bytes(const std::string& name, const QuantizedWeight& weight) {
  require(weight.blocks.type != BlockType::none, name, ": has ", format_of(weight).name(),
          ", expected blocks");
  return Packing(name, codec_of(weight).stored(name, weight, DType::f32)).run();
}

QuantizedWeight from_block_bytes(const std::string& name, BlockType type, const Shape& shape,
                                 std::span<const std::byte> bytes, const Device& device) {
  const BlockFormat& format = block_format(type);
  const GgufTypeInfo& info = gguf_type_info(gguf_type(type));
  require(shape.rank() > 0 && shape.cols() % info.block_elements == 0, name, ": has shape ", shape,
          ", expected rows that are multiples of ", info.block_elements);
  const std::size_t blocks = index(shape.numel() / info.block_elements), size = index(info.block_bytes);
  require(bytes.size() == blocks * size, name, ": ", bytes.size(), " bytes, expected ", blocks * size);
  const std::size_t count = index(info.block_elements), groups = index(format.groups),
                    words = count / kPackedCodes * index(format.affine.bits);
  HostScales values;
  std::vector<std::uint32_t> codes(blocks * words);
  for (std::size_t b = 0; b < blocks; ++b) {
    const GgufBlock block = unpack_gguf_block(info.type, bytes.subspan(b * size, size));
    values.scales.push_back(static_cast<float>(block.scale));
    values.biases.push_back(static_cast<float>(block.bias));
    for (std::size_t j = 0; j < groups; ++j) {
      values.sub_scales.push_back(static_cast<float>(block.sub_scales[j]));
      values.sub_biases.push_back(static_cast<float>(block.sub_biases[j]));
    }
    pack_codes(std::span(block.codes).first(count), format.affine.bits,
               std::span(codes).subspan(b * words, words));
  }
  const WeightFormat stored = type;
  std::vector<Buffer> buffers;
  for (const WeightPart& part : codec_of(stored).parts(shape, stored, DType::f32)) {
    const std::vector<float>& from = part.suffix == ".scales"       ? values.scales
                                     : part.suffix == ".biases"     ? values.biases
                                     : part.suffix == ".sub_scales" ? values.sub_scales
                                                                    : values.sub_biases;
    buffers.push_back(part.dtype == DType::u32 ? Buffer::from(device, part.shape, codes)
                                               : Buffer::from(device, part.shape, from));
  }
  return codec_of(stored).weight(buffers, stored);
}

}  // namespace mixtape
