#include "mixtape/ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/reduce/reduce_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::OpCheck;

// Over rows of `cols`, whose elements are below 5 in magnitude.
OpCheck sum_check(const std::string& name, DType dtype, const Shape& shape, std::int64_t cols,
                  double divisor) {
  OpCheck check;
  check.name = str(name, " ", dtype, shape);
  check.inputs = {testing::random_tensor(dtype, shape, 3)};
  check.forward = [=](const auto& v) { return oracle::row_sum(v[0], cols, divisor); };
  check.complex_forward = [=](const auto& v) { return oracle::row_sum(v[0], cols, divisor); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::row_sum_backward(dy, cols, divisor)};
  };
  const auto n = static_cast<double>(std::min(cols, kSumBlock + cols / kSumBlock));
  check.forward_bound = {1.0, (8.0 + n / 16.0) * 0x1p-24 * 5.0 * static_cast<double>(cols) / divisor};
  check.backward_bound = {1.0, 0.0};
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

TEST(Reduce, RowsMatchOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t cols : {1, 7, 16, 33, 130}) {
        OpCheck check = sum_check("row_sum", dtype, {2, 2, cols}, cols, 1.0);
        check.op = [](const std::vector<Var>& v) { return row_sum(v[0]); };
        check_op(device, check);
        check = sum_check("row_mean", dtype, {2, 2, cols}, cols, static_cast<double>(cols));
        check.op = [](const std::vector<Var>& v) { return row_mean(v[0]); };
        check_op(device, check);
      }
      OpCheck check = sum_check("row_sum", dtype, {3, 65537}, 65537, 1.0);
      check.op = [](const std::vector<Var>& v) { return row_sum(v[0]); };
      check_op(device, check);
    }
  }
}

TEST(Reduce, WholeMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t n : {1, 15, 130, 40001}) {
        OpCheck check = sum_check("sum", dtype, {n}, n, 1.0);
        check.op = [](const std::vector<Var>& v) { return sum(v[0]); };
        check_op(device, check);
        check = sum_check("mean", dtype, {n}, n, static_cast<double>(n));
        check.op = [](const std::vector<Var>& v) { return mean(v[0]); };
        check_op(device, check);
      }
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

OpCheck masked_mean_check(std::int64_t rows) {
  OpCheck check;
  check.name = str("masked_mean ", rows);
  testing::HostTensor weights = testing::random_indices({rows}, 8, 4, DType::f32);  // 0 to 3
  weights.values[0] = 2.0;
  check.inputs = {testing::random_tensor(DType::f32, {rows}, 3), weights};
  check.differentiable = {true, false};
  check.op = [](const std::vector<Var>& v) { return masked_mean(v[0], v[1]); };
  check.forward = [](const auto& v) -> Doubles { return {oracle::masked_mean(v[0], v[1])}; };
  check.complex_forward = [w = weights.values](const auto& v) -> testing::Complexes {
    return {oracle::masked_mean(v[0], w)};
  };
  check.backward = [](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::masked_mean_backward(v[1], dy[0]), {}};
  };
  check.forward_bound = {1.0, (8.0 + static_cast<double>(std::min(rows, kSumBlock)) / 16.0) * 0x1p-24 * 5.0};
  check.backward_bound = {2.0, 0.0};
  check.prove_oracle = rows <= 600;
  return check;
}

TEST(Reduce, MaskedMeanMatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t rows : {1, 5, 64, 33000}) check_op(device, masked_mean_check(rows));
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
  MIXTAPE_EXPECT_ERROR(reduce_forward(encoder, Reduction::mean, device.alloc(DType::f32, {0}), one), code,
                       "mean: x is f32[0]");
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
