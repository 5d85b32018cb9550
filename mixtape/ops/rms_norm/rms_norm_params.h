#pragma once

#include <algorithm>
#include <cstdint>

namespace mixtape {

struct RmsNormParams {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_block;  // rows whose share of dw is added up before the blocks are
  float eps;
  std::uint32_t wants_dx;
  std::uint32_t wants_dw;
  std::uint32_t accumulate_dx;
  std::uint32_t accumulate_dw;
};

// At most 64 blocks, so that their sums stay small beside x; at least 32 rows, so that they pay.
inline std::int64_t rms_norm_row_block(std::int64_t rows) {
  return std::max<std::int64_t>(32, (rows + 63) / 64);
}

}  // namespace mixtape
