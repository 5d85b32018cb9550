#pragma once

#include "mixtape/ops/rms_norm/rms_norm_params.h"

namespace mixtape {

struct GatedRmsNormParams {
  RmsNormParams norm;
  std::uint32_t wants_dz;
  std::uint32_t accumulate_dz;
};

}  // namespace mixtape
