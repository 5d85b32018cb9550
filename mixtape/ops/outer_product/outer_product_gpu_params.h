#pragma once

#include "mixtape/ops/outer_product/outer_product_params.h"

namespace mixtape {

// Rows that a thread of the forward kernel writes.
inline constexpr int kOuterRowsOfThread = 4;

}  // namespace mixtape
