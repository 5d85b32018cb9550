#include "mixtape/quant/weight_codec.h"

#include "mixtape/ops/quantize/quantize.h"

namespace mixtape {
namespace {

constexpr int kHardlyRounded = 8;  // bits: nothing is left to gain

class AffineCodec final : public WeightCodec {
 public:
  std::vector<WeightPart> parts(const Shape& shape, AffineParams format, DType value) const override {
    const Shape groups = scales_shape(shape, format);
    const bool trains = format.bits < kHardlyRounded;
    return {{".weight", DType::u32, packed_shape(shape, format), false, ""},
            {".scales", value, groups, trains, ".scales"},
            {".biases", value, groups, trains, ".scales"}};
  }
  std::vector<Buffer> buffers(const QuantizedWeight& weight) const override {
    return {weight.codes, weight.scales, weight.biases};
  }
  QuantizedWeight weight(const std::vector<Buffer>& buffers, AffineParams format) const override {
    return {buffers.at(0), buffers.at(1), buffers.at(2), format};
  }
  Shape shape(const QuantizedWeight& weight) const override {
    const Shape& groups = weight.scales.shape();
    return groups.with(groups.rank() - 1, groups.cols() * weight.format.group_size);
  }
  QuantizedVar on_tape(const QuantizedWeight& weight, const std::vector<Var>& parts) const override {
    return {weight.codes, parts.at(0), parts.at(1), weight.format};
  }
};

}  // namespace

const WeightCodec& affine_codec() {
  static const AffineCodec codec;
  return codec;
}

std::int64_t stored_bytes(const WeightCodec& codec, const Shape& shape, AffineParams format, DType value) {
  std::int64_t bytes = 0;
  for (const WeightPart& part : codec.parts(shape, format, value))
    bytes += part.shape.numel() * static_cast<std::int64_t>(size_of(part.dtype));
  return bytes;
}

}  // namespace mixtape
