// The cases that max and min over axes are checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> max_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> min_checks(const Device& device, DType dtype);

}  // namespace mixtape
