#include "mixtape/autograd/gradients.h"

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr auto kInvalid = ErrorCode::invalid_argument;
constexpr auto kNo = Accumulate::no, kYes = Accumulate::yes;

class GradientsTest : public ::testing::Test {
 protected:
  Buffer make(const Shape& shape) const { return device.alloc(DType::f32, shape); }
  const Device device = Device::cpu();
  const Buffer x = make({2, 3}), w = make({3});
  const CommandEncoder encoder{device};
  Gradients out{"op_backward", encoder};
};

TEST_F(GradientsTest, WhatIsWantedInOrder) {
  const Buffer dx = make({2, 3}), dw = make({3});
  out.add("dx", {dx, kNo}, "x", x, {x});
  out.add("dz", {}, "x", x);
  out.add("dw", {dw, kYes}, "w", w, {x, w});
  EXPECT_EQ(out.wanted(), 0b101u);
  EXPECT_EQ(out.accumulate(), 0b100u);
  EXPECT_EQ(out.adds(), 0b10u);
  ASSERT_EQ(out.writes().size(), 2u);
  EXPECT_TRUE(overlap(out.writes()[0], dx));
  EXPECT_TRUE(overlap(out.writes()[output_index(out.wanted(), 0b100)], dw));
}

TEST_F(GradientsTest, RefusesAnotherShapeAndTheMemoryOfAnInput) {
  MIXTAPE_EXPECT_ERROR(out.add("dx", {w, kNo}, "x", x), kInvalid,
                       "op_backward: dx is f32[3], expected f32[2,3] like x");
  MIXTAPE_EXPECT_ERROR(out.add("dx", {x, kNo}, "x", x, {w, x}), kInvalid, "dx shares memory with an input");
  const Buffer elsewhere = Device::open("sim").alloc(DType::f32, {2, 3});
  MIXTAPE_EXPECT_ERROR(out.add("dx", {elsewhere, kNo}, "x", x), kInvalid, "expected it on cpu");
  EXPECT_TRUE(out.writes().empty());
}

TEST_F(GradientsTest, OneBufferTwiceMustBeAddedTo) {
  const Buffer d = make({2, 3});
  out.add("da", {d, kNo}, "x", x);
  MIXTAPE_EXPECT_ERROR(out.add("db", {d, kNo}, "x", x), kInvalid, "db shares memory with da");
  MIXTAPE_EXPECT_ERROR(out.add("db", {d.slice(0, 1).reshape({3}), kYes}, "w", w), kInvalid,
                       "db shares memory with da");
  out.add("db", {d, kYes}, "x", x);
  EXPECT_EQ(out.writes().size(), 2u);
}

}  // namespace
}  // namespace mixtape
