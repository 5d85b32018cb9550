#include "mixtape/core/shape.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

std::string message(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "no error";
}

TEST(Shape, CountsAndFolds) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.rank(), 3);
  EXPECT_EQ(s.numel(), 24);
  EXPECT_EQ(s.rows(), 6);
  EXPECT_EQ(s.cols(), 4);
  EXPECT_EQ(str(s), "[2,3,4]");
  EXPECT_EQ(s.with(1, 7), (Shape{2, 7, 4}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
}

TEST(Shape, ScalarAndEmpty) {
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(Shape().rows() * Shape().cols(), 1);
  EXPECT_EQ((Shape{0}).numel(), 0);
  EXPECT_EQ((Shape{5, 0, 3}).numel(), 0);
  EXPECT_EQ((Shape{0, 3}).rows(), 0);
}

TEST(Shape, SizesAre64Bit) {
  EXPECT_EQ((Shape{262144, 8960}).numel(), std::int64_t{262144} * 8960);
  EXPECT_EQ((Shape{INT64_MAX}).numel(), INT64_MAX);
}

TEST(Shape, RefusesOverflowAndNegativeSizes) {
  EXPECT_EQ(message([] {
              Shape({1 << 20, std::int64_t{1} << 43});
            }),
            "shape: [1048576,8796093022208] has more elements than 63 bits can count");
  EXPECT_NE(message([] {
              Shape({std::int64_t{1} << 32, 0, std::int64_t{1} << 32});
            }).find("63 bits"),
            std::string::npos);
  EXPECT_EQ(message([] { Shape({2, -1}); }), "shape: dimension is -1, expected 0 or more");
  EXPECT_EQ(message([] { Shape({INT64_MIN}); }).substr(0, 21), "shape: dimension is -");
}

TEST(Shape, C9_InvalidAxis) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.axis(-1, "op"), 2);
  EXPECT_EQ(s.axis(-3, "op"), 0);
  EXPECT_EQ(s.axis(2, "op"), 2);
  for (const std::int64_t axis :
       {std::int64_t{-4}, std::int64_t{-100}, std::int64_t{3}, std::int64_t{100}, INT64_MIN, INT64_MAX}) {
    EXPECT_EQ(message([&] { s.axis(axis, "op"); }),
              str("op: invalid axis ", axis, ", expected -3 to 2 for shape [2,3,4]"));
  }
  EXPECT_NE(message([] { Shape().axis(0, "op"); }), "no error");
}

}  // namespace
}  // namespace mixtape
