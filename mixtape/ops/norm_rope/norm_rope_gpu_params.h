#pragma once

#include "mixtape/ops/norm_rope/norm_rope_params.h"

namespace mixtape {

// In backward a thread has the same dimensions of this many heads of a token: its angles are read once for them.
inline constexpr int kNormRopeBackwardHeads = 2;

}  // namespace mixtape
