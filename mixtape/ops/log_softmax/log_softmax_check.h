// The cases that log_softmax is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// x [rows,cols], normally distributed with standard deviation `scale`.
testing::OpCheck log_softmax_check(DType dtype, std::int64_t rows, std::int64_t cols, double scale = 2.0);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> log_softmax_checks(const Device& device, DType dtype);

}  // namespace mixtape
