// The cases that rms_norm is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck rms_norm_check(DType dtype, DType weight_dtype, const Shape& shape);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> rms_norm_checks(const Device& device, DType dtype);

}  // namespace mixtape
