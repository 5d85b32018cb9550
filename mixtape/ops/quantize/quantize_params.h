#pragma once

#include <cstdint>

#include "mixtape/ops/quantize/affine.h"
#include "mixtape/ops/quantize/scale_bits.h"

namespace mixtape {

struct QuantizeParams {
  std::int64_t rows;
  std::int64_t cols;
  AffineParams affine;
  Rounding rounding;  // quantize
  ScaleBits out;      // backward
};

}  // namespace mixtape
