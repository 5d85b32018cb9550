#include "mixtape/ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/reduce/reduce_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(Reduce, RowsMatchOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, row_sum_checks(device, dtype));
      check_ops(device, row_mean_checks(device, dtype));
      check_op(device, row_sum_check(dtype, {3, 65537}));
    }
  }
}

TEST(Reduce, WholeMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, sum_checks(device, dtype));
      check_ops(device, mean_checks(device, dtype));
    }
  }
}

// A plain f32 running sum would stop at 2^24.
TEST(Reduce, LongSumOfOnes) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::int64_t n = 20'000'000;
    const Buffer ones = device.alloc_uninitialized(DType::bf16, {n});
    tape.encoder().fill(ones, 1.0f);
    const Var total = sum(tape.constant(ones));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(total.value().to_vector<float>()[0], 2e7f);
  }
}

// A partial sum of f16 values need not be one.
TEST(Reduce, F16SumsDoNotOverflowOnTheWay) {
  for (const Device& device : testing::test_devices()) {
    const std::int64_t cols = 20000;
    std::vector<f16> x(3 * static_cast<std::size_t>(cols), f16(60000.0f));
    for (std::size_t i = 10000; i < 20000; ++i) x[i] = f16(-60000.0f);  // row 0 adds up to 0
    Tape tape(device);
    const Var v = tape.constant(Buffer::from(device, {3, cols}, x));
    const Var row_sums = row_sum(v), row_means = row_mean(v), total = sum(v), average = mean(v);
    tape.encoder().commit_and_wait();
    const auto sums = row_sums.value().to_vector<f16>(), means = row_means.value().to_vector<f16>();
    EXPECT_EQ(static_cast<float>(sums[0]), 0.0f);
    EXPECT_EQ(static_cast<float>(sums[1]), HUGE_VALF);
    EXPECT_EQ(static_cast<float>(means[0]), 0.0f);
    EXPECT_EQ(static_cast<float>(means[1]), 60000.0f);
    EXPECT_NEAR(total.value().to_vector<float>()[0], 2.4e9, 2400.0);
    EXPECT_NEAR(average.value().to_vector<float>()[0], 40000.0, 0.04);
  }
}

TEST(Reduce, MaskedMeanMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    check_ops(device, masked_mean_checks(device, DType::f32));
  }
}

struct MeanAndGradient {
  float mean;
  std::vector<float> gradient;
};

MeanAndGradient masked(const Device& device, const std::vector<float>& loss,
                       const std::vector<float>& weights) {
  const testing::Poison poison(device);
  Tape tape(device);
  const Shape shape{static_cast<std::int64_t>(loss.size())};
  const Var l = tape.parameter(Buffer::from(device, shape, loss));
  const Var y = masked_mean(l, tape.constant(Buffer::from(device, shape, weights)));
  tape.backward(y);
  tape.encoder().commit_and_wait();
  return {y.value().to_vector<float>()[0], l.grad().to_vector<float>()};
}

TEST(Reduce, A12_NoRowHasWeight) {
  for (const Device& device : testing::test_devices()) {
    for (const float loss : {1.0f, HUGE_VALF, NAN}) {
      const auto [mean, gradient] = masked(device, {loss, loss, loss}, {0.0f, 0.0f, 0.0f});
      EXPECT_EQ(mean, 0.0f);
      EXPECT_EQ(gradient, std::vector<float>(3, 0.0f));
    }
  }
}

TEST(Reduce, MaskedRowsAreIgnoredWhateverTheirLoss) {
  for (const Device& device : testing::test_devices()) {
    const auto [mean, gradient] = masked(device, {NAN, 3.0f, HUGE_VALF, 5.0f}, {0.0f, 1.0f, 0.0f, 1.0f});
    EXPECT_EQ(mean, 4.0f);
    EXPECT_EQ(gradient, (std::vector<float>{0.0f, 0.5f, 0.0f, 0.5f}));
    EXPECT_TRUE(std::isnan(masked(device, {NAN, 3.0f}, {1.0f, 1.0f}).mean));
  }
}

TEST(Reduce, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {0, 4}));
    const testing::Poison poison(device);
    EXPECT_EQ(row_sum(x).shape(), (Shape{0}));
    for (const Var& y : {sum(x), mean(x)}) {
      tape.encoder().commit_and_wait();
      EXPECT_EQ(y.value().to_vector<float>(), std::vector<float>{0.0f});
      tape.backward(y);
      EXPECT_EQ(x.grad().shape(), (Shape{0, 4}));
    }
    const Var none = tape.parameter(device.alloc(DType::f32, {0}));
    const Var y = masked_mean(none, tape.constant(none.value()));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), std::vector<float>{0.0f});
  }
}

TEST(Reduce, RowOfRankOneGivesOneElement) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {3}, std::vector<float>{1.0f, 2.0f, 6.0f}));
    const Var y = row_mean(x);
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.shape(), (Shape{1}));
    EXPECT_EQ(y.value().to_vector<float>(), std::vector<float>{3.0f});
  }
}

TEST(Reduce, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Buffer rows = device.alloc(DType::f32, {4});
  const Buffer one = device.alloc(DType::f32, {1});
  MIXTAPE_EXPECT_ERROR(row_reduce_forward(encoder, Reduction::sum, x, one), code,
                       "row_sum: y is f32[1], expected f32[4]");
  MIXTAPE_EXPECT_ERROR(row_reduce_backward(encoder, Reduction::mean, one, x), code,
                       "row_mean_backward: dy is f32[1], expected f32[4]");
  MIXTAPE_EXPECT_ERROR(reduce_forward(encoder, Reduction::sum, x, rows), code,
                       "sum: y is f32[4], expected f32[1]");
  MIXTAPE_EXPECT_ERROR(masked_mean_forward(encoder, x, x, one, rows.slice(0, 1)), code,
                       "masked_mean: loss is f32[4,8]");
  MIXTAPE_EXPECT_ERROR(masked_mean_forward(encoder, rows, rows, one, one), code,
                       "mean shares memory with total");
  Tape tape(device);
  MIXTAPE_EXPECT_ERROR(masked_mean(tape.parameter(rows), tape.parameter(rows)), ErrorCode::not_supported,
                       "weights require a gradient");
}

}  // namespace
}  // namespace mixtape
