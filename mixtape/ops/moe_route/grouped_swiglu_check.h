// The cases that grouped_swiglu is checked with, and that `mixtape gradcheck` runs.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

std::vector<testing::OpCheck> grouped_swiglu_checks(const Device& device, DType dtype);

}  // namespace mixtape
