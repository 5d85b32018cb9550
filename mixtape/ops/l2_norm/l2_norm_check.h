// The cases that l2_norm is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck l2_norm_check(DType dtype, const Shape& shape, float eps = 1e-3f);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> l2_norm_checks(const Device& device, DType dtype);

}  // namespace mixtape
