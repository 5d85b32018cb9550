// The cases that take_along_axis is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// x [rows,cols], index [rows,k] of dtype `index`.
testing::OpCheck take_along_axis_check(DType dtype, DType index, std::int64_t rows, std::int64_t cols,
                                       std::int64_t k);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> take_along_axis_checks(const Device& device, DType dtype);

}  // namespace mixtape
