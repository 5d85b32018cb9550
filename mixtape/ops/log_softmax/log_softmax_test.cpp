#include "mixtape/ops/log_softmax/log_softmax.h"

#include <cmath>

#include "mixtape/ops/log_softmax/log_softmax_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(LogSoftmax, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, log_softmax_checks(device, dtype));
      for (const std::int64_t cols : {256, 1024, 16384})  // held in registers, or just not
        check_op(device, log_softmax_check(dtype, 3, cols));
      check_op(device, log_softmax_check(dtype, 2, 65537));
    }
  }
}

TEST(LogSoftmax, A10_EveryWidthTo130) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (std::int64_t cols = 1; cols <= 130; ++cols) check_op(device, log_softmax_check(dtype, 2, cols), 1);
    }
  }
}

std::vector<float> log_softmax_of(const Device& device, const std::vector<float>& x) {
  const testing::Poison poison(device);
  Tape tape(device);
  const Shape shape{1, static_cast<std::int64_t>(x.size())};
  const Buffer y = log_softmax(tape.constant(Buffer::from(device, shape, x))).value();
  tape.encoder().commit_and_wait();
  return y.to_vector<float>();
}

TEST(LogSoftmax, A1_RowOfMinusInfinityIsNanAtEveryLength) {
  for (const Device& device : testing::test_devices()) {
    for (const std::size_t n : {1, 2, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4095, 4096, 4097, 65537}) {
      for (const float y : log_softmax_of(device, std::vector<float>(n, -HUGE_VALF)))
        ASSERT_TRUE(std::isnan(y)) << n;
    }
  }
}

TEST(LogSoftmax, A4_NanFillsItsRow) {
  for (const Device& device : testing::test_devices()) {
    for (const std::size_t at : {0, 16, 39}) {
      std::vector<float> x(40, 1.0f);
      x[at] = NAN;
      for (const float y : log_softmax_of(device, x)) ASSERT_TRUE(std::isnan(y)) << at;
    }
  }
}

TEST(LogSoftmax, A6_MinusInfinityNextToTheTarget) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {1, 3}, std::vector<float>{-HUGE_VALF, 0.0f, 0.0f}));
    const Var y = log_softmax(x);
    tape.backward(y, Buffer::from(device, {1, 3}, std::vector<float>{0.0f, -1.0f, 0.0f}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (std::vector<float>{-HUGE_VALF, -0.69314718f, -0.69314718f}));
    const std::vector<float> dx = x.grad().to_vector<float>();
    EXPECT_EQ(dx[0], 0.0f);
    EXPECT_NEAR(dx[1], -0.5f, 1e-7f);
    EXPECT_NEAR(dx[2], 0.5f, 1e-7f);
  }
}

TEST(LogSoftmax, A8_EqualLogitsInBf16) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(device.alloc(DType::bf16, {1, 512}));
    const Buffer y = log_softmax(x).value();
    tape.encoder().commit_and_wait();
    for (const bf16 v : y.to_vector<bf16>()) EXPECT_EQ(static_cast<float>(v), -6.25f);  // bf16 of -6.2383
  }
}

// Differences of up to 131008 exceed f16: -inf, and no gradient there.
TEST(LogSoftmax, F16RangeOfLogits) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::vector<f16> logits = {f16(65504.0f), f16(65504.0f), f16(0.0f), f16(-65504.0f)};
    const Var x = tape.parameter(Buffer::from(device, {1, 4}, logits));
    const Var y = log_softmax(x);
    tape.backward(y, Buffer::from(device, {1, 4}, std::vector<f16>(4, f16(1.0f))));
    tape.encoder().commit_and_wait();
    const auto found = y.value().to_vector<f16>(), dx = x.grad().to_vector<f16>();
    EXPECT_EQ(found[0].bits, f16(-0.69314718f).bits);
    EXPECT_EQ(static_cast<float>(found[2]), -65504.0f);
    EXPECT_EQ(static_cast<float>(found[3]), -HUGE_VALF);
    EXPECT_EQ(static_cast<float>(dx[0]), -1.0f);
    EXPECT_EQ(static_cast<float>(dx[3]), 1.0f);
  }
}

TEST(LogSoftmax, LargeLogitsKeepTheirDifference) {
  for (const Device& device : testing::test_devices()) {
    for (const float y : log_softmax_of(device, {1e8f, 1e8f})) EXPECT_NEAR(y, -0.693147f, 1e-6f);
    EXPECT_EQ(log_softmax_of(device, {0.0f, -1000.0f})[1], -1000.0f);
  }
}

TEST(LogSoftmax, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 4}));
    tape.backward(log_softmax(x), device.alloc(DType::f32, {0, 4}));
    EXPECT_EQ(x.grad().shape(), (Shape{0, 4}));
  }
}

TEST(LogSoftmax, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Buffer stats = device.alloc(DType::f32, {4, 2});
  MIXTAPE_EXPECT_ERROR(log_softmax_forward(encoder, x, x, device.alloc(DType::f32, {4})), code,
                       "log_softmax: stats is f32[4], expected f32[4,2]");
  MIXTAPE_EXPECT_ERROR(log_softmax_forward(encoder, device.alloc(DType::i32, {4, 8}), x, stats), code,
                       "x is i32");
  MIXTAPE_EXPECT_ERROR(log_softmax_backward(encoder, x, stats, stats, x), code, "dy is f32[4,2]");
  Tape tape(device);
  MIXTAPE_EXPECT_ERROR(log_softmax(tape.constant(device.alloc(DType::f32, {4, 0}))), code,
                       "a last dimension of 1 or more");
}

}  // namespace
}  // namespace mixtape
