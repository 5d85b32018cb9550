// The cases that the layout changes are checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> permute_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> transpose_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> reshape_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> slice_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> repeat_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> concat_checks(const Device& device, DType dtype);

}  // namespace mixtape
