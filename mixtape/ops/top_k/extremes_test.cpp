#include "mixtape/ops/top_k/extremes.h"

#include <cmath>

#include "mixtape/ops/top_k/extremes_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Floats = std::vector<float>;

TEST(Extremes, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, max_checks(device, dtype));
      check_ops(device, min_checks(device, dtype));
    }
  }
}

TEST(Extremes, TheFirstOfEqualOnesTakesTheGradient) {
  for (const Device& device : testing::test_devices()) {
    const Buffer values = Buffer::from(device, {2, 3}, Floats{1, 5, 5, 5, 1, 1});
    const auto gradient = [&](const auto& reduced) {
      Tape tape(device);
      const Var x = tape.parameter(values);
      tape.backward(reduced(x));
      tape.encoder().commit_and_wait();
      return x.grad().template to_vector<float>();
    };
    EXPECT_EQ(gradient([](const Var& x) { return max(x); }), (Floats{0, 1, 0, 0, 0, 0}));
    EXPECT_EQ(gradient([](const Var& x) { return max(x, {0, 1}); }), (Floats{0, 1, 0, 0, 0, 0}));
    EXPECT_EQ(gradient([](const Var& x) { return min(x); }), (Floats{1, 0, 0, 0, 0, 0}));
  }
}

TEST(Extremes, A4_NanWins) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {2, 3}, Floats{1, NAN, HUGE_VALF, 4, -HUGE_VALF, 2}));
    const Var most = max(x, 1), least = min(x, 1), column = max(x, 0);
    tape.encoder().commit_and_wait();
    EXPECT_TRUE(std::isnan(most.value().to_vector<float>()[0]));
    EXPECT_TRUE(std::isnan(least.value().to_vector<float>()[0]));
    EXPECT_EQ(most.value().to_vector<float>()[1], 4.0f);
    EXPECT_EQ(least.value().to_vector<float>()[1], -HUGE_VALF);
    EXPECT_EQ(column.value().to_vector<float>()[0], 4.0f);
  }
}

TEST(Extremes, Empty) {
  Tape tape(Device::cpu());
  const Var x = tape.parameter(tape.device().alloc(DType::f32, {0, 3}));
  EXPECT_EQ(max(x, 1).shape(), (Shape{0}));
  EXPECT_EQ(min(x, -1, true).shape(), (Shape{0, 1}));
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(max(x, 0), code, "max: x is f32[0,3], expected no reduced axis of 0");
  MIXTAPE_EXPECT_ERROR(min(x), code, "expected no reduced axis of 0");
}

TEST(Extremes, RefusesBadArguments) {
  Tape tape(Device::cpu());
  const auto code = ErrorCode::invalid_argument;
  const Var x = tape.constant(tape.device().alloc(DType::f32, {2, 3}));
  MIXTAPE_EXPECT_ERROR(max(Var()), code, "max: an input is null");
  MIXTAPE_EXPECT_ERROR(min(x, 2), code, "min: invalid axis 2");
  MIXTAPE_EXPECT_ERROR(max(x, {}), code, "max: got no axes");
  MIXTAPE_EXPECT_ERROR(max(tape.constant(tape.device().alloc(DType::u8, {2}))), code, "max: x is u8[2]");
}

}  // namespace
}  // namespace mixtape
