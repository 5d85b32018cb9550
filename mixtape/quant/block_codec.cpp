#include "mixtape/ops/block_scales/block_scales.h"
#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/quant/block_bytes.h"
#include "mixtape/quant/weight_codec.h"

namespace mixtape {
namespace {

constexpr int kHardlyRounded = 8;  // bits: nothing is left to gain

// The part at `next`, which a format may lack.
template <class T>
T take(const std::vector<T>& parts, std::size_t& next, bool is_there) {
  return is_there ? parts.at(next++) : T();
}

// Rounded as block_scales rounds them.
Buffer whole_numbers(const Buffer& u, SubGrid grid) {
  std::vector<float> values = u.to_vector<float>();
  for (float& v : values) v = nearest(grid, v);
  return Buffer::from(u.device(), u.shape(), values);
}

Buffer f16_numbers(const std::string& name, const Buffer& b) {
  return stored_as(DType::f32, name, stored_as(DType::f16, name, b));
}

class BlockCodec final : public WeightCodec {
 public:
  std::vector<WeightPart> parts(const Shape& shape, const WeightFormat& format, DType) const override {
    const BlockFormat& f = block_format(format.block);
    const Shape groups = scales_shape(shape, f.affine);
    const Shape blocks = groups.with(groups.rank() - 1, groups.cols() / f.groups);
    const bool trains = format.bits < kHardlyRounded;
    std::vector<WeightPart> parts = {{".weight", DType::u32, packed_shape(shape, f.affine), false},
                                     {".scales", DType::f32, blocks, trains}};
    if (f.has_biases) parts.push_back({".biases", DType::f32, blocks, trains});
    if (f.scales.is_stored()) parts.push_back({".sub_scales", DType::f32, groups, trains});
    if (f.biases.is_stored()) parts.push_back({".sub_biases", DType::f32, groups, trains});
    return parts;
  }
  std::vector<Buffer> buffers(const QuantizedWeight& weight) const override {
    const BlockScales& b = weight.blocks;
    std::vector<Buffer> all = {weight.codes, b.scales};
    for (const Buffer& part : {b.biases, b.sub_scales, b.sub_biases}) {
      if (part) all.push_back(part);
    }
    return all;
  }
  QuantizedWeight weight(const std::vector<Buffer>& buffers, const WeightFormat& format) const override {
    const BlockFormat& f = block_format(format.block);
    QuantizedWeight weight{buffers.at(0), {}, {}, f.affine, {f.type, buffers.at(1), {}, {}, {}}};
    std::size_t next = 2;
    weight.blocks.biases = take(buffers, next, f.has_biases);
    weight.blocks.sub_scales = take(buffers, next, f.scales.is_stored());
    weight.blocks.sub_biases = take(buffers, next, f.biases.is_stored());
    Tape tape(weight.codes.device());
    std::vector<Var> constants;
    for (std::size_t i = 1; i < buffers.size(); ++i) constants.push_back(tape.constant(buffers[i]));
    const QuantizedVar made = on_tape(weight, constants);
    tape.encoder().commit_and_wait();
    weight.scales = made.scales.value();
    weight.biases = made.biases.value();
    return weight;
  }
  QuantizedVar on_tape(const QuantizedWeight& weight, const std::vector<Var>& parts) const override {
    const BlockFormat& f = block_format(weight.blocks.type);
    std::size_t next = 1;
    const Var& scales = parts.at(0);
    const Var biases = take(parts, next, f.has_biases), sub_scales = take(parts, next, f.scales.is_stored()),
              sub_biases = take(parts, next, f.biases.is_stored());
    return {weight.codes, block_scales(scales, sub_scales, {f.groups, f.scales}),
            f.has_biases
                ? block_scales(biases, sub_biases, {f.groups, f.biases})
                : block_scales(scales, sub_scales, {f.groups, f.scales, -static_cast<float>(f.zero_code)}),
            weight.format};
  }
  // A step changes a group's scale by its share of the mean scale, and its bias by as much as that.
  double unit(const QuantizedWeight& weight, std::size_t part) const override {
    const BlockScales& b = weight.blocks;
    const Buffer found = buffers(weight).at(part);
    const auto is = [&](const Buffer& other) { return other && overlap(found, other); };
    if (is(b.biases)) return of_bias(weight, b.sub_biases);
    if (is(b.sub_biases)) return of_bias(weight, b.biases);
    return mean_magnitude(found);
  }
  QuantizedWeight stored(const std::string& path, const QuantizedWeight& weight, DType) const override {
    const BlockFormat& f = block_format(weight.blocks.type);
    std::vector<Buffer> all = buffers(weight);
    std::size_t next = 1;
    all[next] = f16_numbers(path + ".scales", all[next]), ++next;
    if (f.has_biases) all[next] = f16_numbers(path + ".biases", all[next]), ++next;
    if (f.scales.is_stored()) all[next] = whole_numbers(all[next], f.scales), ++next;
    if (f.biases.is_stored()) all[next] = whole_numbers(all[next], f.biases), ++next;
    return this->weight(all, f.type);
  }
  std::int64_t stored_bytes(const Shape& shape, const WeightFormat& format, DType) const override {
    const GgufTypeInfo& info = gguf_type_info(gguf_type(format.block));
    return shape.numel() / info.block_elements * info.block_bytes;
  }

 private:
  // Of a factor of the biases whose other one is `other`; null: 1.
  static double of_bias(const QuantizedWeight& weight, const Buffer& other) {
    const double step = mean_magnitude(weight.scales), by = other ? mean_magnitude(other) : 1.0;
    return by > 0.0 ? step / by : step;
  }
};

}  // namespace

const WeightCodec& block_codec() {
  static const BlockCodec codec;
  return codec;
}

}  // namespace mixtape
