#pragma once

#include <cstdint>

namespace mixtape {

// A step is 1, or 0 for an operand of one element.
struct CompareParams {
  std::int64_t count;
  std::int64_t a_step, b_step;
  std::uint32_t when_less, when_equal, when_greater, when_unordered;  // 0 or 1
};

struct WhereParams {
  std::int64_t count;
  std::int64_t mask_step, a_step, b_step;
};

struct WhereBackwardParams {
  std::int64_t count;
  std::int64_t mask_step;
  std::uint32_t is_a;
  std::uint32_t accumulate;
};

}  // namespace mixtape
