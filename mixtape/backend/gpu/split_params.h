#pragma once

#include <cstdint>

namespace mixtape {

constexpr int kSplitParts = 3;

struct SplitParams {
  std::int64_t count;  // of x
  std::int64_t cols;
};
struct SplitSumParams {
  std::int64_t count;  // of the sum
  std::uint32_t accumulate;
};

}  // namespace mixtape
