#pragma once

#include <cstdint>

namespace mixtape {

// Columns from one product to the next, two for each lane, and the rows of a block of threads, a warp each.
inline constexpr int kGptqCols = 64, kGptqRows = 8;

struct GptqGpuParams {
  std::int64_t rows;  // that share a factor
  std::int64_t cols;
  std::int64_t begin;  // the block of columns: [begin, begin + width)
  std::int32_t width;  // 32 or 64
  std::int32_t bits;
  std::int32_t group_size;
};

}  // namespace mixtape
