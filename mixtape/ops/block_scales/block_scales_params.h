#pragma once

#include <cstdint>

namespace mixtape {

// Bits of `wanted` and `accumulate`.
inline constexpr std::uint32_t kBlockDd = 1, kBlockDu = 2;

struct BlockScalesParams {
  std::int64_t blocks;  // of all rows, one after the other
  std::int32_t groups;  // of a block
  float lowest, highest;
  float factor;
  std::uint32_t has_sub;  // else every q is 1
  std::uint32_t wanted;
  std::uint32_t accumulate;
};

}  // namespace mixtape
