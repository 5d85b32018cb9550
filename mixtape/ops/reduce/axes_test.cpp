#include "mixtape/ops/reduce/axes.h"

#include <cmath>

#include "mixtape/ops/reduce/axes_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Floats = std::vector<float>;

// Sums and means over axes are among reduce_test's.
TEST(Axes, ExpandMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, expand_checks(device, dtype));
  }
}

TEST(Axes, ShapesWithAndWithoutKeptDimensions) {
  Tape tape(Device::cpu());
  const Var x = tape.constant(tape.device().alloc(DType::f32, {2, 3, 4}));
  EXPECT_EQ(sum(x, 1).shape(), (Shape{2, 4}));
  EXPECT_EQ(sum(x, -1, true).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(mean(x, {0, 2}).shape(), (Shape{3}));
  EXPECT_EQ(mean(x, {2, 0}, true).shape(), (Shape{1, 3, 1}));
  EXPECT_EQ(sum(x, {0, 1, 2}).shape(), (Shape{1}));
  EXPECT_EQ(sum(x, {0, 1, 2}, true).shape(), (Shape{1, 1, 1}));
}

TEST(Axes, EmptyAxes) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const testing::Poison poison(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {3, 0}));
    const Var y = sum(x, 1);
    EXPECT_EQ(sum(x, 0).shape(), (Shape{0}));
    tape.backward(y, device.alloc(DType::f32, {3}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), Floats(3, 0.0f));
    EXPECT_EQ(x.grad().shape(), (Shape{3, 0}));
    EXPECT_EQ(expand(tape.constant(device.alloc(DType::f32, {2, 1})), {2, 0}).shape(), (Shape{2, 0}));
  }
}

// A sum in f16 would be infinite on the way.
TEST(Axes, MeansOfF16DoNotOverflow) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {64, 3}, std::vector<f16>(192, f16(60000.0f))));
    const Var y = mean(x, 0);
    tape.encoder().commit_and_wait();
    for (const f16 v : y.value().to_vector<f16>()) EXPECT_EQ(static_cast<float>(v), 60000.0f);
  }
}

TEST(Axes, ExpandsMasks) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {2, 1}, std::vector<std::uint8_t>{7, 9}));
    const Var y = expand(x, {2, 3});
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{7, 7, 7, 9, 9, 9}));
  }
}

TEST(Axes, RefusesBadArguments) {
  const Device device = Device::cpu();
  Tape tape(device);
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Var x = tape.constant(device.alloc(DType::f32, {2, 3, 4}));
  MIXTAPE_EXPECT_ERROR(sum(x, 3), code, "sum: invalid axis 3, expected -3 to 2 for shape [2,3,4]");
  MIXTAPE_EXPECT_ERROR(sum(x, {1, -2}), code, "sum: axis 1 is named twice");
  MIXTAPE_EXPECT_ERROR(mean(x, {}), code, "mean: got no axes, expected 1 or more");
  MIXTAPE_EXPECT_ERROR(mean(Var(), 0), code, "mean: an input is null");
  MIXTAPE_EXPECT_ERROR(sum(tape.constant(device.alloc(DType::u32, {2})), 0), code, "sum: x is u32[2]");
  MIXTAPE_EXPECT_ERROR(expand(x, {2, 3, 5}), code, "expand: shapes [2,3,4] and [2,3,5] don't broadcast");
  MIXTAPE_EXPECT_ERROR(expand(x, {3, 4}), code,
                       "expand: x is f32[2,3,4], expected sizes of 1 or those of [3,4]");
  MIXTAPE_EXPECT_ERROR(expand_forward(encoder, x.value(), x.value().reshape({2, 3, 4})), code,
                       "shares memory");
}

}  // namespace
}  // namespace mixtape
