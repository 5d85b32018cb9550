#include "mixtape/quant/block_bytes.h"

#include <algorithm>
#include <cmath>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_block_parts.h"
#include "mixtape/ops/block_scales/block_scales.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/quant/on_host.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

// The values of a part as f16 holds them.
Buffer as_f16(const std::string& name, const char* what, const std::string& suffix, const Buffer& b) {
  if (!b) return b;
  Buffer halves = on_host(stored_as(DType::f16, name + suffix, b));
  for (const f16 half : host_span<f16>(halves)) {
    const auto value = static_cast<float>(half);
    require(std::isfinite(value), name, ": ", what, " of a block is ", value, ", expected what f16 holds");
  }
  return halves;
}

// Blocks of one weight, one after the other.
class Packing {
 public:
  Packing(const std::string& name, const QuantizedWeight& weight)
      : format_(block_format(weight.blocks.type)),
        type_(gguf_type_info(gguf_type(format_.type))),
        scales_(as_f16(name, "scale", ".scales", weight.blocks.scales)),
        biases_(as_f16(name, "bias", ".biases", weight.blocks.biases)),
        sub_scales_(on_host(weight.blocks.sub_scales)),
        sub_biases_(on_host(weight.blocks.sub_biases)),
        words_(on_host(weight.codes)) {}

  Buffer run() const {
    const std::int64_t blocks = scales_.numel();
    const Buffer out = Device::cpu().alloc_uninitialized(DType::u8, {blocks * type_.block_bytes});
    constexpr std::int64_t kChunk = 512;  // blocks
#pragma omp parallel for schedule(dynamic) if (blocks > kChunk)
    for (std::int64_t first = 0; first < blocks; first += kChunk)
      pack(first, std::min(blocks, first + kChunk), out);
    return out;
  }

 private:
  void pack(std::int64_t first, std::int64_t last, const Buffer& out) const {
    const std::size_t size = index(type_.block_bytes), count = index(format_.block_elements()),
                      words = count / kPackedCodes * index(format_.affine.bits);
    GgufBlock block;
    for (std::size_t b = index(first); b < index(last); ++b) {
      block.scale = host_span<f16>(scales_)[b];
      if (biases_) block.bias = host_span<f16>(biases_)[b];
      take(sub_scales_, format_.scales, b, block.sub_scales);
      take(sub_biases_, format_.biases, b, block.sub_biases);
      unpack_codes(host_span<std::uint32_t>(words_).subspan(b * words, words), format_.affine.bits,
                   std::span(block.codes).first(count));
      pack_gguf_block(type_.type, block, {out.host_bytes() + b * size, size});
    }
  }
  void take(const Buffer& whole, SubGrid grid, std::size_t b, std::array<std::int32_t, 16>& to) const {
    if (!whole) return;
    const std::size_t groups = index(format_.groups);
    const std::span<const float> values = host_span<float>(whole).subspan(b * groups, groups);
    for (std::size_t j = 0; j < groups; ++j) to[j] = static_cast<std::int32_t>(nearest(grid, values[j]));
  }

  const BlockFormat& format_;
  const GgufTypeInfo& type_;
  Buffer scales_, biases_;          // f16 [blocks]
  Buffer sub_scales_, sub_biases_;  // f32 [groups]
  Buffer words_;
};

// The parts behind the codes.
struct HostScales {
  std::vector<float> scales, biases, sub_scales, sub_biases;
};

}  // namespace

GgufType gguf_type(BlockType type) {
  const std::string name = block_format(type).name;
  for (std::uint32_t id = 0;; ++id) {
    if (const GgufTypeInfo* info = find_gguf_type(id); info != nullptr && name == info->name)
      return info->type;
  }
}

Buffer to_block_bytes(const std::string& name, const QuantizedWeight& weight) {
  require(weight.blocks.type != BlockType::none, name, ": has ", format_of(weight).name(),
          ", expected blocks");
  return Packing(name, weight).run();
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
