// The cases that cast is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck cast_check(DType from, DType to);
// Those that `mixtape gradcheck` runs: from `dtype` to the others.
std::vector<testing::OpCheck> cast_checks(const Device& device, DType dtype);

}  // namespace mixtape
