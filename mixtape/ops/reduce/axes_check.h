// The cases that sums and means over axes, and their inverse, are checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

std::vector<testing::OpCheck> sum_over_axes_checks(DType dtype);
std::vector<testing::OpCheck> mean_over_axes_checks(DType dtype);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> expand_checks(const Device& device, DType dtype);

}  // namespace mixtape
