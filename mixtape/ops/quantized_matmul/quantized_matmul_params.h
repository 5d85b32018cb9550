#pragma once

#include <cstdint>

#include "mixtape/ops/quantize/affine.h"
#include "mixtape/ops/quantize/scale_bits.h"

namespace mixtape {

struct QuantizedMatmulParams {
  std::int64_t rows;     // T
  std::int64_t experts;  // E; 1 without offsets
  std::int64_t n;
  std::int64_t k;
  AffineParams format;
  std::uint32_t has_offsets;  // the last buffer read is u32 [E+1]
  std::uint32_t has_addend;   // forward: the last buffer read is as y
  std::uint32_t accumulate;   // dx
  ScaleBits out;              // backward of scales and biases
};

}  // namespace mixtape
