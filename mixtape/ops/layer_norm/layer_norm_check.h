// The cases that layer_norm is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// With how many of weight and bias: 0, 1 or 2.
testing::OpCheck layer_norm_check(DType dtype, const Shape& shape, int parameters);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> layer_norm_checks(const Device& device, DType dtype);

}  // namespace mixtape
