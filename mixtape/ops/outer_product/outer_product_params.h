#pragma once

#include <cstdint>

namespace mixtape {

// Rows of a matrix whose share of db is added up before the blocks are.
inline constexpr std::int64_t kOuterRows = 64;

struct OuterProductParams {
  std::int64_t batch;  // matrices
  std::int64_t rows;   // of each: the size of a
  std::int64_t cols;   // the size of b
  std::uint32_t accumulate;

  constexpr std::int64_t blocks() const { return (rows + kOuterRows - 1) / kOuterRows; }
};

}  // namespace mixtape
