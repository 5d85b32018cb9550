#pragma once

#include "mixtape/ops/rope/rope_params.h"

namespace mixtape {

struct RopeAnglesParams {
  std::int64_t positions;
  std::int64_t pairs;
  float factor;
  float sign;
};

// A thread turns the same pairs of this many heads.
inline constexpr int kRopeHeads = 4;

}  // namespace mixtape
