// The cases that outer_product is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// a [batch, n], b [batch, m]
testing::OpCheck outer_product_check(DType dtype, std::int64_t batch, std::int64_t n, std::int64_t m);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> outer_product_checks(const Device& device, DType dtype);

}  // namespace mixtape
