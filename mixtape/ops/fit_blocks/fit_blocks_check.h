// The cases that fit_blocks is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/fit_blocks/fit_blocks.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

inline constexpr BlockType kBlockTypes[] = {
    BlockType::q4_0, BlockType::q4_1, BlockType::q5_0, BlockType::q5_1, BlockType::q8_0,
    BlockType::q2_k, BlockType::q3_k, BlockType::q4_k, BlockType::q5_k, BlockType::q6_k};

// Fits, waits, and gives what was written.
QuantizedWeight fit_in_blocks(const Buffer& w, const Buffer& importance, BlockType type, BlockFit how);
// The values that it stands for, of the parts themselves.
testing::Doubles decoded_blocks(const QuantizedWeight& q);
// Per block, as the fit counts them; h [cols] or [experts, cols].
testing::Doubles block_errors(const testing::Doubles& w, const testing::Doubles& h,
                              const testing::Doubles& decoded, std::int64_t cols, const BlockFormat& f);

testing::OpCheck fit_blocks_check(const testing::HostTensor& w, const testing::HostTensor& importance,
                                  BlockType type, BlockFit how);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> fit_blocks_checks(const Device& device, DType dtype);

}  // namespace mixtape
