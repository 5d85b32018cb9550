// The cases that adam_step and sum_of_squares are checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// p after one step, from p of `dtype`, g of `g_dtype`, m and v.
testing::OpCheck adam_step_check(DType dtype, DType g_dtype, std::int64_t n);
// Of one tensor.
testing::OpCheck sum_of_squares_check(DType dtype, std::int64_t n);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> adam_step_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> sum_of_squares_checks(const Device& device, DType dtype);

}  // namespace mixtape
