// The one form in which ops, models and files pass on a quantized weight; affine.h has the codes.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/quantize/block_format.h"
#include "mixtape/runtime/buffer.h"

namespace mixtape {

// What the scales and biases of a weight in blocks follow from (block_format.h), f32: what trains, and what a file
// holds once it is rounded. Null: there is none.
struct BlockScales {
  BlockType type = BlockType::none;  // of no blocks: scales and biases are what is stored
  Buffer scales, biases;             // outer ones, [..., N, K/block]
  Buffer sub_scales, sub_biases;     // [..., N, K/group_size]
};

// A matrix [N, K], or stacked experts [E, N, K]: w = fma(code, scale, bias) of the element's group.
struct QuantizedWeight {
  Buffer codes;           // u32 [..., N, K/32*bits]
  Buffer scales, biases;  // [..., N, K/group_size], of one value dtype
  AffineParams format;
  BlockScales blocks = {};
};

// The same on a tape. Gradients go to scales and biases.
struct QuantizedVar {
  Buffer codes;
  Var scales, biases;
  AffineParams format;

  QuantizedWeight value() const { return {codes, scales.value(), biases.value(), format}; }
};

}  // namespace mixtape
