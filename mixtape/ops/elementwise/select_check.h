// The cases that comparisons and where are checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> compare_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> where_checks(const Device& device, DType dtype);

}  // namespace mixtape
