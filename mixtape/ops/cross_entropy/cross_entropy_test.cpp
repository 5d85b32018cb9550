#include "mixtape/ops/cross_entropy/cross_entropy.h"

#include <cmath>

#include "mixtape/ops/cross_entropy/cross_entropy_check.h"
#include "mixtape/ops/cross_entropy/cross_entropy_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::upload;

TEST(CrossEntropy, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, cross_entropy_checks(device, dtype));
  }
}

TEST(CrossEntropy, A10_EveryWidthTo130) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (std::int64_t cols = 1; cols <= 130; ++cols)
        check_op(device, cross_entropy_check(device, dtype, DType::u32, 2, cols, 2.0), 1);
    }
  }
}

TEST(CrossEntropy, WideRows) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const std::int64_t cols : {20000, 49157})
        check_op(device, cross_entropy_check(device, dtype, DType::u32, 3, cols, 3.0));
    }
  }
}

struct Result {
  std::vector<float> loss;
  std::vector<float> dx;
};

// One forward and backward of f32 rows, every upstream gradient being `dloss`.
Result run(const Device& device, std::int64_t rows, const std::vector<float>& x,
           const std::vector<std::int64_t>& targets, float dloss = 1.0f) {
  const testing::Poison poison(device);
  Tape tape(device);
  const Shape shape{rows, static_cast<std::int64_t>(x.size()) / rows};
  const Var logits = tape.parameter(Buffer::from(device, shape, x));
  const Var loss = cross_entropy(logits, upload_targets(device, targets, DType::u32));
  tape.backward(loss, Buffer::from(device, {rows}, std::vector<float>(targets.size(), dloss)));
  tape.encoder().commit_and_wait();
  return {loss.value().to_vector<float>(), logits.grad().to_vector<float>()};
}

constexpr float kLn2 = 0.693147181f;

TEST(CrossEntropy, A6_MinusInfinityAwayFromTheTarget) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, 1, {-HUGE_VALF, 0.0f, 0.0f}, {1});
    EXPECT_FLOAT_EQ(r.loss[0], kLn2);
    EXPECT_EQ(r.dx, (std::vector<float>{0.0f, -0.5f, 0.5f}));
  }
}

TEST(CrossEntropy, A6_IgnoredRowIsZeroWhateverItsLogits) {
  for (const Device& device : testing::test_devices()) {
    for (const float bad : {NAN, HUGE_VALF, -HUGE_VALF}) {
      for (const float dloss : {1.0f, HUGE_VALF}) {
        const Result r = run(device, 2, {bad, bad, 1.0f, bad, 2.0f, bad}, {-1, -1}, dloss);
        EXPECT_EQ(r.loss, std::vector<float>(2, 0.0f));
        EXPECT_EQ(r.dx, std::vector<float>(6, 0.0f));
      }
    }
  }
}

TEST(CrossEntropy, A6_ImpossibleTargetIsInfinite) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, 1, {-HUGE_VALF, 0.0f, 0.0f}, {0});
    EXPECT_EQ(r.loss[0], HUGE_VALF);
    EXPECT_EQ(r.dx, (std::vector<float>{-1.0f, 0.5f, 0.5f}));
  }
}

TEST(CrossEntropy, A8_EqualLogitsInBf16) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Buffer x = device.alloc(DType::bf16, {1, 512});
    tape.encoder().fill(x, 3.0f);
    const Var logits = tape.parameter(x);
    const Var loss = cross_entropy(logits, upload_targets(device, {7}, DType::u32));
    tape.backward(loss);
    tape.encoder().commit_and_wait();
    EXPECT_FLOAT_EQ(loss.value().to_vector<float>()[0], 6.23832463f);
    const std::vector<bf16> dx = logits.grad().to_vector<bf16>();
    EXPECT_EQ(static_cast<float>(dx[0]), 0.001953125f);
    EXPECT_EQ(static_cast<float>(dx[7]), static_cast<float>(bf16(0.001953125f - 1.0f)));
  }
}

// Differences of logits past 65504, gradients below the smallest value.
TEST(CrossEntropy, RangeOfF16) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(
        upload(device, {DType::f16, {3, 3}, {6e4, 6e4, -6e4, 6e4, 6e4, -6e4, 0.0, -16.0, -18.0}}));
    const Var loss = cross_entropy(x, upload_targets(device, {0, 2, 0}, DType::u32));
    tape.backward(loss, Buffer::from(device, {3}, std::vector<float>(3, 1.0f)));
    tape.encoder().commit_and_wait();
    EXPECT_FLOAT_EQ(loss.value().to_vector<float>()[0], kLn2);
    EXPECT_FLOAT_EQ(loss.value().to_vector<float>()[1], 120000.0f + kLn2);
    const Doubles dx = testing::download(x.grad()).values;
    EXPECT_EQ(Doubles(dx.begin(), dx.begin() + 6), (Doubles{-0.5, 0.5, 0.0, 0.5, 0.5, -1.0}));
    EXPECT_EQ(dx[7], 2 * 0x1p-24);  // e^-16 = 1.9 * 2^-24
    EXPECT_EQ(dx[8], 0.0);          // e^-18 = 0.3 * 2^-24
  }
}

TEST(CrossEntropy, LargeLogitsKeepTheirDifferences) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, 2, {1e8f, 1e8f, -1e8f, -1e8f}, {0, 1});
    for (const float loss : r.loss) EXPECT_FLOAT_EQ(loss, kLn2);
    EXPECT_EQ(r.dx, (std::vector<float>{-0.5f, 0.5f, 0.5f, -0.5f}));
  }
}

// The maximum moves all the way, over a range whose exponentials f32 does not hold.
TEST(CrossEntropy, RisingLogits) {
  for (const Device& device : testing::test_devices()) {
    const std::int64_t cols = 20000;
    testing::HostTensor x{DType::f32, {1, cols}, Doubles(cols)};
    for (std::int64_t c = 0; c < cols; ++c) x.values[c] = static_cast<double>(c) / 64.0 - 200.0;
    const std::vector<float> values(x.values.begin(), x.values.end());
    const Result r = run(device, 1, values, {cols - 100});
    const double wanted = oracle::cross_entropy(x.values, {cols - 100})[0];
    EXPECT_NEAR(r.loss[0], wanted, (80.0 + 2.0) * 0x1p-24);
  }
}

TEST(CrossEntropy, MaskedRowIsZeroWhateverItsLogits) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, 1, {NAN, 1.0f}, {1}, 0.0f);
    EXPECT_TRUE(std::isnan(r.loss[0]));
    EXPECT_EQ(r.dx, std::vector<float>(2, 0.0f));
  }
}

TEST(CrossEntropy, NanFillsItsRow) {
  for (const Device& device : testing::test_devices()) {
    for (const std::size_t cols : {2, 17, 70}) {
      for (const std::size_t at : {std::size_t{0}, cols - 1}) {
        std::vector<float> x(cols, 1.0f);
        x[at] = NAN;
        x[cols / 2] = x[cols / 2] == 1.0f ? 100.0f : x[cols / 2];
        const Result r = run(device, 1, x, {0});
        EXPECT_TRUE(std::isnan(r.loss[0])) << cols << " at " << at;
        for (const float d : r.dx) EXPECT_TRUE(std::isnan(d)) << cols << " at " << at;
      }
    }
  }
}

TEST(CrossEntropy, GradientInPlace) {
  for (const Device& device : testing::test_devices()) {
    const testing::HostTensor x = testing::random_tensor(DType::f32, {3, 33}, 5);
    const Buffer targets = upload_targets(device, {4, -1, 32}, DType::u32);
    const Buffer logits = upload(device, x),
                 dloss = upload(device, testing::random_tensor(DType::f32, {3}, 6));
    const Buffer loss = device.alloc(DType::f32, {3}), lse = device.alloc(DType::f32, {3, 2});
    const Buffer dx = device.alloc(DType::f32, {3, 33});
    CommandEncoder encoder(device);
    cross_entropy_forward(encoder, logits, targets, loss, lse);
    cross_entropy_backward(encoder, logits, targets, lse, dloss, dx);
    cross_entropy_backward(encoder, logits, targets, lse, dloss, logits);
    encoder.commit_and_wait();
    EXPECT_EQ(testing::download_bytes(logits), testing::download_bytes(dx));
  }
}

// On the CPU with the same bits. Each width takes another path on a GPU.
TEST(CrossEntropy, BothAtOnce) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const std::int64_t cols : {1, 33, 4096, 20000, 40000, 80000, 151936}) {
        if (device.name() == "sim" && cols > 4096) continue;
        const testing::Poison poison(device);
        const Shape shape{5, cols};
        const Buffer targets = upload_targets(device, {0, -1, cols - 1, cols / 2, cols / 3}, DType::u32);
        const Buffer x = upload(device, testing::random_tensor(dtype, shape, 5, 2.0));
        const Buffer dloss = Buffer::from(device, {5}, std::vector<float>{1.0f, 2.0f, -0.5f, 0.0f, 0.25f});
        const Buffer lse = device.alloc(DType::f32, {5, 2});
        const Buffer loss = device.alloc_uninitialized(DType::f32, {5}), dx = device.alloc(dtype, shape);
        const Buffer loss_2 = device.alloc_uninitialized(DType::f32, {5});
        CommandEncoder encoder(device);
        cross_entropy_forward(encoder, x, targets, loss, lse);
        cross_entropy_backward(encoder, x, targets, lse, dloss, dx);
        cross_entropy_forward_backward(encoder, x, targets, dloss, loss_2, x);
        encoder.commit_and_wait();
        if (device == Device::cpu()) {
          EXPECT_EQ(testing::download_bytes(loss), testing::download_bytes(loss_2));
          EXPECT_EQ(testing::download_bytes(dx), testing::download_bytes(x));
        }
        const std::string what = str(dtype, " ", cols);
        testing::expect_close(what, testing::download(loss_2), testing::download(loss).values, {2.0, 3e-5});
        testing::expect_close(what, testing::download(x), testing::download(dx).values, {128.0, 1e-37});
      }
    }
  }
}

TEST(CrossEntropy, EmptyBatch) {
  Tape tape(Device::cpu());
  const Var x = tape.parameter(tape.device().alloc(DType::f32, {0, 5}));
  const Var loss = cross_entropy(x, tape.device().alloc(DType::u32, {0}));
  EXPECT_EQ(loss.shape(), Shape({0}));
  tape.backward(loss, tape.device().alloc(DType::f32, {0}));
  EXPECT_EQ(x.grad().shape(), Shape({0, 5}));
}

TEST(CrossEntropy, TargetOutsideTheVocabulary) {
  for (const Device& device : testing::test_devices()) {
    const testing::Poison poison(device);
    CommandEncoder encoder(device);
    const Buffer x = upload(device, testing::random_tensor(DType::f32, {4, 8}, 1));
    const Buffer loss = device.alloc_uninitialized(DType::f32, {4}), lse = device.alloc(DType::f32, {4, 2});
    const Buffer unsigned_ids = Buffer::from(device, {4}, std::vector<std::uint32_t>{1, 8, 0xfffffffeu, 7});
    cross_entropy_forward(encoder, x, unsigned_ids, loss, lse);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "8");
    EXPECT_EQ(loss.to_vector<float>()[1], 0.0f);
    EXPECT_EQ(loss.to_vector<float>()[2], 0.0f);
    EXPECT_GT(loss.to_vector<float>()[3], 0.0f);
    const Buffer signed_ids = Buffer::from(device, {4}, std::vector<std::int32_t>{1, -1, 7, -2});
    cross_entropy_forward(encoder, x, signed_ids, loss, lse);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "-2");
    const Buffer dx = device.alloc_uninitialized(DType::f32, {4, 8});
    cross_entropy_backward(encoder, x, unsigned_ids, lse, loss, dx);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "8");
    for (const float d : dx.slice(1, 3).to_vector<float>()) EXPECT_EQ(d, 0.0f);
  }
}

TEST(CrossEntropy, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8}), t = device.alloc(DType::u32, {4});
  const Buffer loss = device.alloc(DType::f32, {4}), lse = device.alloc(DType::f32, {4, 2});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(cross_entropy_forward(encoder, t, t, loss, lse), code, "cross_entropy: x is u32[4]");
  MIXTAPE_EXPECT_ERROR(cross_entropy_forward(encoder, x, loss, loss, lse), code,
                       "targets is f32[4], expected u32");
  MIXTAPE_EXPECT_ERROR(cross_entropy_forward(encoder, x, t.slice(0, 3), loss, lse), code,
                       "targets is u32[3], expected one per row of x f32[4,8]");
  MIXTAPE_EXPECT_ERROR(cross_entropy_forward(encoder, x, t, lse, lse), code,
                       "loss is f32[4,2], expected f32[4]");
  MIXTAPE_EXPECT_ERROR(cross_entropy_forward(encoder, x, t, loss, loss), code,
                       "lse is f32[4], expected f32[4,2]");
  MIXTAPE_EXPECT_ERROR(cross_entropy_forward(encoder, device.alloc(DType::f32, {4, 0}), t, loss, lse), code,
                       "a last dimension of 1 or more");
  MIXTAPE_EXPECT_ERROR(cross_entropy_backward(encoder, x, t, lse, lse, x), code, "dloss is f32[4,2]");
  MIXTAPE_EXPECT_ERROR(cross_entropy_backward(encoder, x, t, lse, loss, loss), code, "dx is f32[4]");
  MIXTAPE_EXPECT_ERROR(cross_entropy_backward(encoder, x, t, lse, loss, x, Accumulate::yes), code,
                       "dx shares memory with x");
}

}  // namespace
}  // namespace mixtape
