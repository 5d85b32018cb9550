#include "mixtape/quant/weight_codec.h"

#include <cmath>

#include "mixtape/ops/quantize/quantize.h"

namespace mixtape {
namespace {

constexpr int kHardlyRounded = 8;  // bits: nothing is left to gain

class AffineCodec final : public WeightCodec {
 public:
  std::vector<WeightPart> parts(const Shape& shape, const WeightFormat& format, DType value) const override {
    const Shape groups = scales_shape(shape, format);
    const bool trains = format.bits < kHardlyRounded;
    return {{".weight", DType::u32, packed_shape(shape, format), false},
            {".scales", value, groups, trains},
            {".biases", value, groups, trains}};
  }
  std::vector<Buffer> buffers(const QuantizedWeight& weight) const override {
    return {weight.codes, weight.scales, weight.biases};
  }
  QuantizedWeight weight(const std::vector<Buffer>& buffers, const WeightFormat& format) const override {
    return {buffers.at(0), buffers.at(1), buffers.at(2), format};
  }
  QuantizedVar on_tape(const QuantizedWeight& weight, const std::vector<Var>& parts) const override {
    return {weight.codes, parts.at(0), parts.at(1), weight.format};
  }
  double unit(const QuantizedWeight& weight, std::size_t) const override {
    return mean_magnitude(weight.scales);
  }
  QuantizedWeight stored(const std::string& path, const QuantizedWeight& weight, DType value) const override {
    return {weight.codes, stored_as(value, path + ".scales", weight.scales),
            stored_as(value, path + ".biases", weight.biases), weight.format};
  }
  std::int64_t stored_bytes(const Shape& shape, const WeightFormat& format, DType value) const override {
    std::int64_t bytes = 0;
    for (const WeightPart& part : parts(shape, format, value))
      bytes += part.shape.numel() * static_cast<std::int64_t>(size_of(part.dtype));
    return bytes;
  }
};

}  // namespace

const WeightCodec& affine_codec() {
  static const AffineCodec codec;
  return codec;
}

const WeightCodec& codec_of(const WeightFormat& format) {
  return format.is_blocks() ? block_codec() : affine_codec();
}

Shape weight_shape(const QuantizedWeight& weight) {
  const Shape& groups = weight.scales.shape();
  return groups.with(groups.rank() - 1, groups.cols() * weight.format.group_size);
}

double mean_magnitude(const Buffer& b) {
  const std::vector<float> values = b.to_vector<float>();
  double sum = 0.0;
  for (const float v : values) sum += std::abs(static_cast<double>(v));
  return values.empty() ? 0.0 : sum / static_cast<double>(values.size());
}

}  // namespace mixtape
