#pragma once

#include <algorithm>
#include <cstdint>

namespace mixtape {

// Bits of `wanted` and `accumulate`.
inline constexpr std::uint32_t kLayerNormDx = 1, kLayerNormDw = 2, kLayerNormDb = 4;

struct LayerNormParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_block;  // rows whose shares of dw and db are added up before the blocks are
  float eps;
  std::uint32_t has_weight;
  std::uint32_t has_bias;
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

// At most 256 blocks, so that their sums stay small beside x, of at least 32 rows, so that they pay.
inline std::int64_t layer_norm_row_block(std::int64_t rows) {
  return std::max<std::int64_t>(32, (rows + 255) / 256);
}

}  // namespace mixtape
