// The cases that top_k is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck top_k_check(DType dtype, const Shape& shape, std::int64_t k);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> top_k_checks(const Device& device, DType dtype);

}  // namespace mixtape
