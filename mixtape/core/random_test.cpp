#include "mixtape/core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

// Pins the sequence: results on record depend on it. The first is SplitMix64's published output for seed 0,
// 0xe220a8397b1dcdaf, mixed once more.
TEST(Random, TheSequenceNeverChanges) {
  EXPECT_EQ(random_bits(0, 0), 0xa706dd2f4d197e6fu);
  EXPECT_EQ(random_bits(0, 1), 0x2a98f501af37e97fu);
  EXPECT_EQ(random_bits(123, 0), 0xe050a2a38d8ef504u);
  EXPECT_EQ(random_bits(123, 1u << 31), 0xc7f88356eeac4163u);
  EXPECT_EQ(permutation(7, 8), (std::vector<std::uint64_t>{0, 7, 2, 3, 5, 6, 1, 4}));
}

TEST(Random, UniformFillsTheUnitInterval) {
  double sum = 0.0, squares = 0.0, low = 1.0, high = 0.0;
  constexpr std::uint64_t kCount = 100000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double u = uniform(1, i);
    sum += u;
    squares += u * u;
    low = std::min(low, u);
    high = std::max(high, u);
  }
  EXPECT_GE(low, 0.0);
  EXPECT_LT(low, 1e-3);
  EXPECT_LT(high, 1.0);
  EXPECT_GT(high, 1.0 - 1e-3);
  // Five standard deviations of the means: sqrt(1/12) and sqrt(4/45) over sqrt(kCount).
  EXPECT_NEAR(sum / kCount, 0.5, 5.0 * 0.2887 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0 / 3.0, 5.0 * 0.2981 / std::sqrt(kCount));
}

TEST(Random, NormalHasItsMoments) {
  double sum = 0.0, squares = 0.0, fourths = 0.0;
  constexpr std::uint64_t kCount = 100000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = normal(2, i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 5.0 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0, 5.0 * std::sqrt(2.0) / std::sqrt(kCount));
  EXPECT_NEAR(fourths / kCount, 3.0, 5.0 * std::sqrt(96.0) / std::sqrt(kCount));
}

TEST(Random, NeighbouringSeedsAreNotShiftedCopies) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    for (std::uint64_t i = 0; i < 50; ++i) seen.insert(random_bits(seed, i));
  }
  EXPECT_EQ(seen.size(), 2500u);
}

TEST(Random, IndexIsInRangeAndEven) {
  std::map<std::uint64_t, int> counts;
  for (std::uint64_t i = 0; i < 30000; ++i) ++counts[uniform_index(3, i, 3)];
  ASSERT_EQ(counts.size(), 3u);
  for (const auto& [value, count] : counts) {
    EXPECT_LT(value, 3u);
    EXPECT_NEAR(count, 10000, 5.0 * std::sqrt(30000.0 * 2.0 / 9.0));
  }
  // More than half of all draws are repeated for this limit.
  const std::uint64_t limit = (std::uint64_t{1} << 63) + 1;
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_LT(uniform_index(4, i, limit), limit);
  EXPECT_EQ(uniform_index(5, 6, 1), 0u);
  EXPECT_THROW(uniform_index(5, 6, 0), Error);
}

TEST(Random, PermutationHoldsEachIndexOnce) {
  for (const std::uint64_t n : {0, 1, 2, 3, 1000}) {
    std::vector<std::uint64_t> order = permutation(9, n);
    std::sort(order.begin(), order.end());
    ASSERT_EQ(order.size(), n);
    for (std::uint64_t i = 0; i < n; ++i) ASSERT_EQ(order[i], i);
  }
  EXPECT_NE(permutation(1, 100), permutation(2, 100));
}

TEST(Random, PermutationsAreEquallyLikely) {
  std::map<std::vector<std::uint64_t>, int> counts;
  for (std::uint64_t seed = 0; seed < 12000; ++seed) ++counts[permutation(seed, 3)];
  ASSERT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 2000, 5.0 * std::sqrt(12000.0 * 5.0 / 36.0));
}

}  // namespace
}  // namespace mixtape
