#include "mixtape/backend/cpu/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "mixtape/core/random.h"

namespace mixtape::cpu {
namespace {

// A mixture of experts: the sizes of a step's buffers differ from those of all steps before, their sum
// hardly.
TEST(Pool, RandomSizesHoldNoMoreMemoryAfterTheFirstSteps) {
  constexpr std::uint64_t kSteps = 2000, kExperts = 16;
  constexpr std::size_t kStepBytes = std::size_t{96} << 20;
  Pool pool;
  std::byte* const forever = pool.allocate(1000);
  std::size_t held = 0, highest = 0, live = 0;
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::vector<std::uint64_t> cuts = {0, kStepBytes};
    for (std::uint64_t e = 1; e < kExperts; ++e) cuts.push_back(uniform_index(step, e, kStepBytes));
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::byte*> blocks;
    for (std::uint64_t e = 0; e < kExperts; ++e) blocks.push_back(pool.allocate(cuts[e + 1] - cuts[e]));
    for (const std::uint64_t i : permutation(step, kExperts)) pool.release(blocks[i]);
    highest = std::max(highest, pool.held_bytes());
    if (step == 20) held = highest;
    if (step == 20) live = pool.stats().live_bytes;
  }
  EXPECT_LE(highest, held + (std::size_t{64} << 20));
  EXPECT_EQ(pool.stats().live_bytes, live);
  pool.release(forever);
}

}  // namespace
}  // namespace mixtape::cpu
