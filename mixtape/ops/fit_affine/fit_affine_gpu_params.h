#pragma once

#include <cstdint>

namespace mixtape {

// Weights that a block of threads searches at once, a group per thread: so many groups of a column of groups.
inline constexpr int kFitWeights = 8192;

struct FitAffineGpuParams {
  std::int64_t experts;
  std::int64_t rows;  // of an expert
  std::int64_t cols;
  std::int64_t row_blocks;  // of an expert
  std::int32_t bits;
  std::int32_t group_size;
  std::uint32_t has_importance;
  float drop;
  float nudge;
};

}  // namespace mixtape
