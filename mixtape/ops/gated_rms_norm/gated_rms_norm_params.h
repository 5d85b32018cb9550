#pragma once

#include "mixtape/ops/rms_norm/rms_norm_params.h"

namespace mixtape {

struct GatedRmsNormParams {
  RmsNormParams norm;  // its bits are for the sum of dw's partials alone
  // Backward, in bits:
  enum : std::uint32_t { dx = 1, dz = 2, dw = 4 };
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
