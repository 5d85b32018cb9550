#pragma once

#include <cstdint>

namespace mixtape {

// Rows and columns of the result that a block computes.
constexpr int kGroupTile = 128;
// Steps of matrix units that are in shared memory at a time: 64 terms of the sums of both operands, in 16
// bits.
constexpr int kTensorStages = 3;
constexpr int kTensorBytes = kTensorStages * 2 * kGroupTile * 64 * 2;

struct GroupedGemmParams {
  std::int64_t rows;     // T
  std::int64_t experts;  // E
  std::int64_t n;
  std::int64_t k;
  std::uint32_t trans_b;
  std::uint32_t accumulate;
};

}  // namespace mixtape
