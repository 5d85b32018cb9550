// The cases that scale_rows is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// x [rows..., cols], s [rows...].
testing::OpCheck scale_rows_check(DType dtype, const Shape& rows, std::int64_t cols);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> scale_rows_checks(const Device& device, DType dtype);

}  // namespace mixtape
