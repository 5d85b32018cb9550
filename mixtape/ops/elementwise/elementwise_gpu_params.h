#pragma once

#include <cstdint>

namespace mixtape {

// partial[s, c] = sum over rows s*row_block .. of f(dy[r,c], self[c], other[r,c]).
struct BackwardSumParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_block;
};

}  // namespace mixtape
