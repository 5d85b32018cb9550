#pragma once

#include <cstdint>

namespace mixtape {

struct PartialsParams {
  std::int64_t blocks;
  std::int64_t cols;
  std::uint32_t accumulate;
};

inline constexpr int kPartialThreads = 256;  // of a block: {x, y} with x threads beside each other
inline constexpr int kPartialPack = 4;       // columns of a thread
inline constexpr int kMostPartialsX = 8;
inline constexpr int kPartialScratch = kPartialThreads / 32 * kMostPartialsX * kPartialPack;

}  // namespace mixtape
