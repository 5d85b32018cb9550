#pragma once

#include <cstdint>

namespace mixtape {

// Rows and columns of the result that a block computes.
constexpr int kProductTile = 128;

// gpu::Gemm's shape: see there.
struct ProductParams {
  std::int64_t m, n, k;
  std::int64_t row_a, row_b, row_c;
  std::int64_t step_a, step_b, step_c;
  std::uint32_t trans_a, trans_b, accumulate;
  float alpha;
};

}  // namespace mixtape
