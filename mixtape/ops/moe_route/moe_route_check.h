// The cases that moe_route and moe_combine are checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// The weights of logits [tokens,experts].
testing::OpCheck moe_route_check(DType dtype, std::int64_t tokens, std::int64_t experts, std::int64_t k,
                                 bool normalise);
// x [tokens*k,cols] in the order of 4 experts.
testing::OpCheck moe_dispatch_check(const Device& device, DType dtype, std::int64_t tokens, std::int64_t k,
                                    std::int64_t cols);
testing::OpCheck moe_combine_check(const Device& device, DType dtype, std::int64_t tokens, std::int64_t k,
                                   std::int64_t cols);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> moe_route_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> moe_combine_checks(const Device& device, DType dtype);

}  // namespace mixtape
