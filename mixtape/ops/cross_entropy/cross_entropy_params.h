#pragma once

#include <cstdint>

namespace mixtape {

// The target of a row that doesn't count; -1 as i32.
inline constexpr std::uint32_t kIgnoreTarget = 0xffffffffu;

struct CrossEntropyParams {
  std::int64_t rows;
  std::int64_t cols;
  std::uint32_t is_signed;  // targets are i32
  std::uint32_t accumulate;
};

}  // namespace mixtape
