// What depends on the format in which a quantized weight is stored: its tensors, which of them train, and the
// scales and biases per group that matrix products take. A new format is a codec in a file of its own, and a line in
// codec_of.
#pragma once

#include <string>
#include <vector>

#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// One tensor of a weight, under a module's path.
struct WeightPart {
  std::string suffix;  // ".scales"
  DType dtype;
  Shape shape;
  bool trains = false;  // in calibration
};

class WeightCodec {
 public:
  virtual ~WeightCodec() = default;
  // The tensors of a weight of `shape` [..., N, K], the codes first; what is neither a code nor packed is in
  // `value`, where the format leaves that open.
  virtual std::vector<WeightPart> parts(const Shape& shape, const WeightFormat& format,
                                        DType value) const = 0;
  // The buffers of a weight, as parts() lists them.
  virtual std::vector<Buffer> buffers(const QuantizedWeight& weight) const = 0;
  // The inverse: scales and biases follow from the parts.
  virtual QuantizedWeight weight(const std::vector<Buffer>& buffers, const WeightFormat& format) const = 0;
  // What matrix products take: the weight with scales and biases per group, from its parts behind the codes
  // on their tape.
  virtual QuantizedVar on_tape(const QuantizedWeight& weight, const std::vector<Var>& parts) const = 0;
  // What a relative step of a part behind the codes, parts()[part], is measured in.
  virtual double unit(const QuantizedWeight& weight, std::size_t part) const = 0;
  // The values that a file holds, those that are open in `value`. Throws invalid_argument for one that overflows,
  // naming the tensor under `path`.
  virtual QuantizedWeight stored(const std::string& path, const QuantizedWeight& weight,
                                 DType value) const = 0;
  // Bytes of a weight in a file.
  virtual std::int64_t stored_bytes(const Shape& shape, const WeightFormat& format, DType value) const = 0;
};

const WeightCodec& codec_of(const WeightFormat& format);
inline const WeightCodec& codec_of(const QuantizedWeight& weight) { return codec_of(format_of(weight)); }

// Codes of 2 to 8 bits with a scale and a bias per group; scales and biases train below 8 bits.
const WeightCodec& affine_codec();
// GGUF's blocks (block_format.h): outer scales and biases, and as real numbers that are rounded on the way those of
// the groups; all train below 8 bits.
const WeightCodec& block_codec();

// Of a weight itself, [..., N, K].
Shape weight_shape(const QuantizedWeight& weight);
// 0 of nothing.
double mean_magnitude(const Buffer& b);

}  // namespace mixtape
