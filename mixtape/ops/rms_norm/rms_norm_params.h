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

// On the CPU at most 64 blocks, so that their sums stay small beside x, of at least 32 rows, so that they
// pay. On a GPU a block of threads takes one: enough of them to fill the card.
inline std::int64_t rms_norm_row_block(std::int64_t rows, bool is_cpu) {
  const std::int64_t blocks = is_cpu ? 64 : 512;
  return std::max<std::int64_t>(is_cpu ? 32 : 8, (rows + blocks - 1) / blocks);
}

}  // namespace mixtape
