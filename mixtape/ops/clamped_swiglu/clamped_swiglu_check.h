// The cases that clamped_swiglu is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/clamped_swiglu/clamped_swiglu.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck clamped_swiglu_check(DType dtype, const Shape& shape, const ClampedSwigluOptions& options);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> clamped_swiglu_checks(const Device& device, DType dtype);

}  // namespace mixtape
