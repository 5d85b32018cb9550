// The cases that the reductions are checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck row_sum_check(DType dtype, const Shape& shape);
testing::OpCheck masked_mean_check(std::int64_t rows);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> row_sum_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> row_mean_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> sum_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> mean_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> masked_mean_checks(const Device& device, DType dtype);

}  // namespace mixtape
