#include "mixtape/core/glob.h"

#include <gtest/gtest.h>

namespace mixtape {
namespace {

TEST(Glob, StarIsAnyCharactersAndQuestionMarkOne) {
  EXPECT_TRUE(glob_matches("a.b", "a.b"));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("*.b", "x.a.b"));
  EXPECT_TRUE(glob_matches("a*b*c", "abbc"));
  EXPECT_TRUE(glob_matches("a**", "a"));
  EXPECT_TRUE(glob_matches("layers.?.up", "layers.7.up"));
  EXPECT_FALSE(glob_matches("layers.?.up", "layers.17.up"));
  EXPECT_FALSE(glob_matches("layers.?.up", "layers..up"));
  EXPECT_FALSE(glob_matches("a*b", "abc"));
  EXPECT_FALSE(glob_matches("", "a"));
  EXPECT_FALSE(glob_matches("a.b", "axb"));  // a dot is a dot
}

TEST(Glob, DistanceCountsWhatTheWildcardsDoNotCover) {
  EXPECT_EQ(glob_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(glob_distance("", "abc"), 3U);
  EXPECT_EQ(glob_distance("abc", ""), 3U);
  EXPECT_EQ(glob_distance("*.down_prj", "model.layers.0.mlp.down_proj"), 1U);
  EXPECT_EQ(glob_distance("?*", ""), 1U);
}

}  // namespace
}  // namespace mixtape
