#include "mixtape/ops/elementwise/select.h"

#include <cmath>

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/elementwise/select_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Floats = std::vector<float>;
using Mask = std::vector<std::uint8_t>;

TEST(Select, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, compare_checks(device, dtype));
      check_ops(device, where_checks(device, dtype));
    }
    for (const DType dtype : {DType::i32, DType::u32, DType::u8, DType::u16})
      check_ops(device, compare_checks(device, dtype));
  }
}

Mask mask_of(const Var& y) {
  y.tape().encoder().commit_and_wait();
  return y.value().to_vector<std::uint8_t>();
}

TEST(Select, NumbersAndOperators) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {3}, Floats{-1.0f, 0.5f, 2.0f}));
    EXPECT_EQ(mask_of(x > 0.5f), (Mask{0, 0, 1}));
    EXPECT_EQ(mask_of(x >= 0.5f), (Mask{0, 1, 1}));
    EXPECT_EQ(mask_of(0.5f < x), (Mask{0, 0, 1}));
    EXPECT_EQ(mask_of(x <= -x), (Mask{1, 0, 0}));
    EXPECT_EQ(mask_of(x == 2.0f), (Mask{0, 0, 1}));
    EXPECT_EQ(mask_of(x != x), (Mask{0, 0, 0}));
    EXPECT_FALSE((x > 0.0f).requires_grad());
    const Var y = where(x > 0.0f, x, -1.5);
    tape.backward(y, Buffer::from(device, {3}, Floats{1.0f, HUGE_VALF, 3.0f}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (Floats{-1.5f, 0.5f, 2.0f}));
    EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0.0f, HUGE_VALF, 3.0f}));
    const Var ids = tape.constant(Buffer::from(device, {2}, std::vector<std::uint32_t>{4000000000u, 7}));
    EXPECT_EQ(mask_of(ids == 4e9), (Mask{1, 0}));
    MIXTAPE_EXPECT_ERROR(ids > 0.5, ErrorCode::invalid_argument,
                         "greater: c is 0.5, expected a whole number of u32");
    MIXTAPE_EXPECT_ERROR(ids == -1, ErrorCode::invalid_argument, "equal: c is -1");
  }
}

TEST(Select, A4_NanIsUnequalToAll) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {2}, Floats{NAN, HUGE_VALF}));
    EXPECT_EQ(mask_of(x == x), (Mask{0, 1}));
    EXPECT_EQ(mask_of(x != x), (Mask{1, 0}));
    EXPECT_EQ(mask_of(x <= x), (Mask{0, 1}));
    EXPECT_EQ(mask_of(x < 1.0), (Mask{0, 0}));
  }
}

// What isn't chosen may be anything.
TEST(Select, NothingComesThroughFromTheOtherSide) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {2}, Floats{NAN, 1.0f}));
    const Var mask = tape.constant(Buffer::from(device, {2}, Mask{0, 9}));
    const Var y = where(mask, x, 4.0);
    tape.backward(y, Buffer::from(device, {2}, Floats{NAN, 2.0f}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (Floats{4.0f, 1.0f}));
    EXPECT_EQ(x.grad().to_vector<float>(), (Floats{0.0f, 2.0f}));
  }
}

TEST(Select, Empty) {
  Tape tape(Device::cpu());
  const Var x = tape.parameter(tape.device().alloc(DType::f32, {0, 3}));
  const Var mask = x > 0.0f;
  EXPECT_EQ(mask.shape(), (Shape{0, 3}));
  tape.backward(where(mask, x, 1.0), x.value());
  EXPECT_EQ(x.grad().shape(), (Shape{0, 3}));
}

TEST(Select, RefusesBadArguments) {
  const Device device = Device::cpu();
  Tape tape(device);
  const auto code = ErrorCode::invalid_argument;
  const Var x = tape.constant(device.alloc(DType::f32, {2, 3})),
            half = tape.constant(device.alloc(DType::bf16, {3}));
  MIXTAPE_EXPECT_ERROR(x < half, code, "less: b is bf16[3], expected f32 like a");
  MIXTAPE_EXPECT_ERROR(x == tape.constant(device.alloc(DType::f32, {2})), code,
                       "equal: shapes [2,3] and [2]");
  MIXTAPE_EXPECT_ERROR(where(x, x, x), code, "where: mask is f32[2,3], expected u8, as comparisons give");
  MIXTAPE_EXPECT_ERROR(where(x > 0.0, x, half), code, "where: b is bf16[3], expected f32 like a");
}

}  // namespace
}  // namespace mixtape
