#include "mixtape/calib/schedule.h"

#include <gtest/gtest.h>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

TEST(Schedule, RisesThenFalls) {
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 1, 4, 20), 2.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 4, 4, 20), 8.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 12, 4, 20), 4.0);  // half way down
  EXPECT_NEAR(warmup_cosine(8.0, 8, 4, 20), 4.0 + 4.0 * 0.70710678118654752, 1e-14);
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 20, 4, 20), 0.0);
  for (std::int64_t step = 5; step <= 20; ++step) {
    EXPECT_LT(warmup_cosine(8.0, step, 4, 20), warmup_cosine(8.0, step - 1, 4, 20)) << step;
  }
}

TEST(Schedule, EndsAtTheFinalShare) {
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 20, 4, 20, 0.25), 2.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 12, 4, 20, 0.25), 5.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 25, 4, 20, 0.25), 2.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(8.0, 7, 4, 20, 1.0), 8.0);
}

TEST(Schedule, NoWarmUpOrNothingElse) {
  EXPECT_GT(warmup_cosine(1.0, 1, 0, 10), 0.97);
  EXPECT_LT(warmup_cosine(1.0, 1, 0, 10), 1.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(1.0, 1, 0, 1, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(warmup_cosine(1.0, 10, 10, 10), 1.0);
  EXPECT_DOUBLE_EQ(warmup_cosine(1.0, 11, 10, 10), 1.0);
}

TEST(Schedule, RefusesBadArguments) {
  EXPECT_THROW(warmup_cosine(1.0, 0, 1, 10), Error);
  EXPECT_THROW(warmup_cosine(1.0, 1, 11, 10), Error);
  EXPECT_THROW(warmup_cosine(1.0, 1, -1, 10), Error);
  EXPECT_THROW(warmup_cosine(1.0, 1, 1, 10, 1.5), Error);
}

}  // namespace
}  // namespace mixtape
