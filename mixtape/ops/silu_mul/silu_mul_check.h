// The cases that silu_mul is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck silu_mul_check(DType dtype, const Shape& shape);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> silu_mul_checks(const Device& device, DType dtype);

}  // namespace mixtape
