#pragma once

#include <cstdint>

namespace mixtape {

struct PartialsParams {
  std::int64_t blocks;
  std::int64_t cols;
  std::uint32_t accumulate;
};

// Columns that a block adds up, and threads beside each other for them.
inline constexpr int kPartialCols = 32;
inline constexpr int kPartialsX = 8;

}  // namespace mixtape
