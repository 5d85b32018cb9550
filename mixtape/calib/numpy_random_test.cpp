#include "mixtape/calib/numpy_random.h"

#include <gtest/gtest.h>

namespace mixtape {
namespace {

using Order = std::vector<std::uint32_t>;

// All expected values below were printed by NumPy 2.4.6.
TEST(NumpyRandom, Words) {
  NumpyRandom random(123);
  EXPECT_EQ(random.next(), 2991312382u);
  EXPECT_EQ(random.next(), 3062119789u);
  EXPECT_EQ(random.next(), 1228959102u);
}

// The generator's own published check: word 10,000 of seed 5489.
TEST(NumpyRandom, WordTenThousand) {
  NumpyRandom random(5489);
  EXPECT_EQ(random.next(), 3499211612u);
  for (int i = 2; i < 10000; ++i) random.next();
  EXPECT_EQ(random.next(), 4123659995u);
}

TEST(NumpyRandom, PermutationsFollowEachOther) {
  NumpyRandom random(123);
  EXPECT_EQ(random.permutation(10), (Order{4, 0, 7, 5, 8, 3, 1, 6, 9, 2}));
  EXPECT_EQ(random.permutation(10), (Order{3, 5, 4, 2, 8, 7, 6, 9, 0, 1}));
}

TEST(NumpyRandom, PermutationsOfOtherSeedsAndSizes) {
  EXPECT_EQ(NumpyRandom(0).permutation(7), (Order{6, 2, 1, 3, 0, 5, 4}));
  EXPECT_EQ(NumpyRandom(0xffffffffu).permutation(7), (Order{1, 5, 0, 6, 4, 2, 3}));
  NumpyRandom random(1);
  EXPECT_EQ(random.permutation(0), Order{});
  EXPECT_EQ(random.permutation(1), Order{0});
  EXPECT_EQ(random.permutation(2), (Order{0, 1}));
  EXPECT_EQ(random.permutation(3), (Order{1, 2, 0}));
}

std::uint64_t digest(const Order& order) {
  std::uint64_t h = 0;
  for (const std::uint32_t i : order) h = h * 31 + i;
  return h;
}

TEST(NumpyRandom, LongPermutations) {
  EXPECT_EQ(digest(NumpyRandom(123).permutation(2048)), 9803951196834751862u);
  EXPECT_EQ(digest(NumpyRandom(7).permutation(70001)), 18366500900293098854u);
}

}  // namespace
}  // namespace mixtape
