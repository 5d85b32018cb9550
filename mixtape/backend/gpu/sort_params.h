#pragma once

#include <cstdint>

namespace mixtape {

inline constexpr int kSortThreads = 512;  // of a block, at most
inline constexpr int kSortRounds = 4;     // keys of a thread: a block's are a tile
inline constexpr int kSortBits = 9;       // a pass tells at most 2^9 digits apart
inline constexpr int kFewTiles = 64;      // whose counts every tile adds up itself

struct SortParams {
  std::int64_t count;  // of keys
  std::int64_t limit;  // keys that are not in 0 .. limit-1 count as limit
  std::int64_t tiles;
  std::int32_t shift, bits;  // of this pass's digit
  std::uint32_t is_first;    // keys are as the caller gave them, places 0, 1, 2, ...
  std::uint32_t is_only;
  std::uint32_t keys_are_signed;
};

}  // namespace mixtape
