#pragma once

#include <cstdint>

namespace mixtape {

inline constexpr std::int64_t kMaxAxes = 8;

// `count` runs of `length` elements: to[to_offset + i * to_stride + c] (+)= from[from_offset + i *
// from_stride + c].
struct RunsParams {
  std::int64_t count;
  std::int64_t length;
  std::int64_t from_offset;
  std::int64_t from_stride;
  std::int64_t to_offset;
  std::int64_t to_stride;
};

// As RunsParams, `step` elements further for each of start[0], which is below `starts`.
struct PutParams {
  RunsParams runs;
  std::int64_t step;
  std::int64_t starts;
};

// y[i0, i1, ...] (+)= x[sum_a i_a * strides[a]]; y is contiguous with these dims.
struct PermuteParams {
  std::int64_t rank;
  std::int64_t dims[kMaxAxes];
  std::int64_t strides[kMaxAxes];
};

// dx[r, c] = sum over t of dy[r, t, c].
struct RepeatParams {
  std::int64_t rows;
  std::int64_t times;
  std::int64_t cols;
  std::uint32_t accumulate;
};

}  // namespace mixtape
