#pragma once

#include "mixtape/ops/sampling/sampling_params.h"

namespace mixtape {

// Neighbouring columns are cut into so many tiles, whose weights are summed first.
inline constexpr int kDrawTiles = 1024;

}  // namespace mixtape
