#pragma once

#include "mixtape/ops/rms_norm/rms_norm_params.h"
#include "mixtape/ops/rope/rope_params.h"

namespace mixtape {

struct NormRopeParams {
  RopeParams rope;
  // rows are tokens, cols head_dim; its bits are for the sum of dw's partials alone. Blocks of tokens are counted from
  // position to position, the sequences side by side.
  RmsNormParams norm;
  // Backward, in bits:
  enum : std::uint32_t { dx = 1, dw = 2 };
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
