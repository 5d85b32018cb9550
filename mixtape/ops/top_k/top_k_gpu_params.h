#pragma once

#include <cstdint>

namespace mixtape {

inline constexpr int kSharedEntries = 4096;  // a power of two

struct TopKSelectParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t k;
  std::int64_t capacity;  // entries per row that may be sorted: a power of two, at least k
  std::int64_t goal;      // where so few are left, the narrowing ends: k .. capacity
  std::uint32_t wants_values;
};

}  // namespace mixtape
