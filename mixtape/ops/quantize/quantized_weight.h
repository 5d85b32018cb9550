// The one form in which ops, models and files pass on a quantized weight; affine.h has the codes.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/quantize/affine.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

// A matrix [N, K], or stacked experts [E, N, K]: w = fma(code, scale, bias) of the element's group.
struct QuantizedWeight {
  Buffer codes;           // u32 [..., N, K/32*bits]
  Buffer scales, biases;  // [..., N, K/group_size], of one value dtype
  AffineParams format;
};

// The same on a tape. Gradients go to scales and biases.
struct QuantizedVar {
  Buffer codes;
  Var scales, biases;
  AffineParams format;

  QuantizedWeight value() const { return {codes, scales.value(), biases.value(), format}; }
};

}  // namespace mixtape
