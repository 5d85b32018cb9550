#pragma once

#include <cstdint>

namespace mixtape {

// Rows and columns of the result that a block of 256 threads computes.
constexpr int kGroupTile = 128;

struct GroupedGemmParams {
  std::int64_t rows;     // T
  std::int64_t experts;  // E
  std::int64_t n;
  std::int64_t k;
  std::uint32_t trans_b;
  std::uint32_t accumulate;
};

}  // namespace mixtape
