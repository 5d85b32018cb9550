#pragma once

#include <cstdint>

namespace mixtape {

// A block as kernels see it; block_format.h.
struct BlockShape {
  std::int32_t groups, group_size, bits;
  float largest;             // code
  float zero_code;           // of symmetric types
  std::uint32_t has_biases;  // else symmetric
  std::uint32_t has_sub_scales, has_sub_biases;
  float lowest_scale, highest_scale;  // whole numbers
  float highest_bias;
};

struct FitBlocksParams {
  std::int64_t experts;  // rows of importance: 1 where all of w shares it
  std::int64_t rows;     // of w for each of them
  std::int64_t cols;
  BlockShape shape;
  std::uint32_t has_importance;
  std::uint32_t searches;
};

// Throw invalid_argument. Positions count all elements of importance; row and column are of w.
[[noreturn]] void refuse_block_importance(std::int64_t position, float value);
[[noreturn]] void refuse_block_overflow(std::int64_t row, std::int64_t col);

}  // namespace mixtape
