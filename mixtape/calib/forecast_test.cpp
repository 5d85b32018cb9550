#include "mixtape/calib/forecast.h"

#include <gtest/gtest.h>

namespace mixtape {
namespace {

const std::vector<StageTime> kStages = {{"fitting", 10.0}, {"training", 80.0}, {"evaluating", 10.0}};

StageProgress at(const std::string& stage, std::int64_t done, std::int64_t total) {
  return {.stage = stage, .done = done, .total = total, .unit = "steps"};
}

TEST(Forecast, BeginsWithWhatIsExpected) {
  Forecast f(kStages);
  EXPECT_DOUBLE_EQ(f.seconds(), 100.0);
  EXPECT_DOUBLE_EQ(f.seconds_left(), 100.0);
  f.update(at("fitting", 0, 4), 1000.0);
  EXPECT_DOUBLE_EQ(f.seconds_left(), 100.0);
}

TEST(Forecast, CountsDownOverAllStagesWhereAllGoesAsExpected) {
  Forecast f(kStages);
  f.update(at("fitting", 0, 10), 0.0);
  f.update(at("fitting", 5, 10), 5.0);
  EXPECT_NEAR(f.seconds_left(), 95.0, 1e-9);
  f.update(at("fitting", 10, 10), 10.0);
  f.update(at("training", 0, 40), 10.0);
  f.update(at("training", 20, 40), 50.0);
  EXPECT_NEAR(f.seconds_left(), 50.0, 1e-9);
  f.update(at("evaluating", 3, 3), 100.0);
  EXPECT_NEAR(f.seconds_left(), 0.0, 1e-9);
}

// A machine that others use: twice the time.
TEST(Forecast, LearnsThePaceOfTheMachine) {
  Forecast f(kStages);
  f.update(at("fitting", 0, 10), 0.0);
  f.update(at("fitting", 10, 10), 20.0);
  EXPECT_GT(f.seconds_left(), 100.0);
  f.update(at("training", 0, 80), 20.0);
  f.update(at("training", 40, 80), 100.0);
  EXPECT_NEAR(f.seconds_left(), 100.0, 20.0);  // 80 and 20
  f.update(at("training", 79, 80), 178.0);
  EXPECT_NEAR(f.seconds_left(), 22.0, 2.5);
}

// One stage was misjudged: its own pace counts for what is left of it.
TEST(Forecast, AStageHasAPaceOfItsOwn) {
  Forecast f({{"fitting", 50.0}, {"training", 50.0}});
  f.update(at("fitting", 0, 50), 0.0);
  f.update(at("fitting", 50, 50), 50.0);
  f.update(at("training", 0, 50), 50.0);
  f.update(at("training", 25, 50), 150.0);  // four times as slow
  EXPECT_NEAR(f.seconds_left(), 100.0, 20.0);
}

TEST(Forecast, WhatAnotherRunHasDoneSaysNothingOfThePace) {
  Forecast f(kStages);
  f.update(at("training", 40, 80), 7.0);
  EXPECT_NEAR(f.seconds_left(), 50.0, 1e-9);
  f.update(at("training", 60, 80), 27.0);
  EXPECT_NEAR(f.seconds_left(), 30.0, 1e-9);
}

TEST(Forecast, UnknownStagesAndEmptyOnesAreNoHarm) {
  Forecast f(kStages);
  f.update(at("sampling", 3, 4), 5.0);
  EXPECT_DOUBLE_EQ(f.seconds_left(), 100.0);
  f.update(at("evaluating", 0, 0), 5.0);
  EXPECT_DOUBLE_EQ(f.seconds_left(), 0.0);
  Forecast none({});
  none.update(at("fitting", 1, 2), 0.0);
  EXPECT_DOUBLE_EQ(none.seconds_left(), 0.0);
}

}  // namespace
}  // namespace mixtape
