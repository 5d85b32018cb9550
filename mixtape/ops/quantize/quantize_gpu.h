// Quantized weights between launches: for launchers that decode a weight or reduce its gradient.
#pragma once

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/quantize/quantized_weight.h"
#include "mixtape/ops/quantize/scale_bits.h"

namespace mixtape::gpu {

// log2 of the threads of a group (kCodesAtOnce).
std::int32_t group_shift(AffineParams format);

// Some rows of a quantized weight, one after the other: codes, scales and biases begin at the first.
struct QuantizedSpan {
  // Scales and biases may be null where only codes are read.
  explicit QuantizedSpan(const QuantizedWeight& w);
  Argument codes, scales, biases;
  DType scale_dtype = DType::f32;
  AffineParams format;

  // Elements [begin, begin + count), both multiples of the group size.
  QuantizedSpan part(std::int64_t begin, std::int64_t count) const;
};

// w[i] = fma(code, scale, bias) in f32, rounded once.
void dequantize(const Call& call, const QuantizedSpan& span, const Argument& w, DType dtype,
                std::int64_t count);

// Null arguments are not computed.
struct ScaleGradients {
  Argument dscales, dbiases;
  DType dtype = DType::f32;
  std::uint32_t accumulate = 0;  // ScaleBits
};
// Those that a call writes.
ScaleGradients scale_gradients(const Call& call, const ScaleBits& out);
// dscale = sum dw*code, dbias = sum dw per group of dw [count]; of `span` only codes are read, the gradients
// begin with them.
void reduce_codes(const Call& call, const QuantizedSpan& span, const Argument& dw, DType dtype,
                  std::int64_t count, const ScaleGradients& out);

}  // namespace mixtape::gpu
