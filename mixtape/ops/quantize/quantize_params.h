#pragma once

#include <cstdint>

#include "mixtape/ops/quantize/affine.h"

namespace mixtape {

struct QuantizeParams {
  std::int64_t rows;
  std::int64_t cols;
  AffineParams affine;
  Rounding rounding;           // quantize
  std::uint32_t wants_scales;  // backward: the writes are dscales, dbiases, as far as wanted
  std::uint32_t wants_biases;
  std::uint32_t accumulate_scales;
  std::uint32_t accumulate_biases;
};

}  // namespace mixtape
