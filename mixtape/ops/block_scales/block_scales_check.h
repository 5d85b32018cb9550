// The cases that block_scales is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/block_scales/block_scales.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// All whole numbers of the grid, and some beyond both ends.
testing::HostTensor random_sub_scales(const Shape& groups, std::uint64_t seed, SubGrid grid);

testing::OpCheck block_scales_check(const Shape& blocks, const BlockScaleRule& rule);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> block_scales_checks(const Device& device, DType dtype);

}  // namespace mixtape
