#pragma once

#include "mixtape/ops/layout/layout_params.h"

namespace mixtape {

// A matrix turned over, y[r, c] (+)= x[c, r], at every position on the other axes.
struct TurnParams {
  std::int64_t rows, cols;
  std::int64_t x_stride;  // from one c to the next
  std::int64_t y_stride;  // from one r to the next
  std::int64_t row_tiles, col_tiles;
  std::int64_t rank;  // of the other axes
  std::int64_t dims[kMaxAxes];
  std::int64_t x_strides[kMaxAxes];
  std::int64_t y_strides[kMaxAxes];
};

// Rows and columns of a tile of elements of so many bytes.
constexpr int turn_tile(int bytes) { return bytes == 4 ? 32 : 64; }

// Units that a thread of layout_runs and permute moves.
inline constexpr int kLayoutUnits = 4;

}  // namespace mixtape
