#pragma once

#include <cstdint>

namespace mixtape {

// Sums over `cols`, divided by `divisor`; over everything where rows is 1.
struct ReduceParams {
  std::int64_t rows;
  std::int64_t cols;
  float divisor;
  std::uint32_t accumulate;
};

// A long sum is cut into blocks of this many elements; block sums are then added up.
inline constexpr std::int64_t kSumBlock = 16384;

}  // namespace mixtape
