// What depends on the format in which a quantized weight is stored: its tensors, which of them train, and the
// scales and biases per group that matrix products take. MLX's affine format is the first.
#pragma once

#include <string>
#include <vector>

#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// One tensor of a weight that is stored under a module's path.
struct WeightPart {
  std::string suffix;  // ".scales"
  DType dtype;
  Shape shape;
  bool trains = false;      // in calibration
  std::string unit_suffix;  // the part whose mean magnitude a relative step is measured in
};

class WeightCodec {
 public:
  virtual ~WeightCodec() = default;
  // The tensors of a weight of `shape` [..., N, K], in the order of a file, the codes first; what is neither a
  // code nor packed is in `value`.
  virtual std::vector<WeightPart> parts(const Shape& shape, AffineParams format, DType value) const = 0;
  // The buffers of a weight, as parts() lists them.
  virtual std::vector<Buffer> buffers(const QuantizedWeight& weight) const = 0;
  // The inverse.
  virtual QuantizedWeight weight(const std::vector<Buffer>& buffers, AffineParams format) const = 0;
  // Of the weight itself, [..., N, K].
  virtual Shape shape(const QuantizedWeight& weight) const = 0;
  // What matrix products take: the weight with scales and biases per group, from its parts behind the codes
  // on their tape.
  virtual QuantizedVar on_tape(const QuantizedWeight& weight, const std::vector<Var>& parts) const = 0;
};

// Codes of 2 to 8 bits with a scale and a bias per group; scales and biases train below 8 bits.
const WeightCodec& affine_codec();

// Bytes of all parts.
std::int64_t stored_bytes(const WeightCodec& codec, const Shape& shape, AffineParams format, DType value);

}  // namespace mixtape
