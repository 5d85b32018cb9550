#include <gmock/gmock.h>

#include "mixtape/ops/moe_route/moe_route.h"
#include "mixtape/ops/moe_route/moe_route_check.h"
#include "mixtape/ops/moe_route/moe_route_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::HostTensor;

constexpr auto kInvalid = ErrorCode::invalid_argument;

std::vector<std::int64_t> integers(const HostTensor& t) { return {t.values.begin(), t.values.end()}; }

TEST(MoePlan, SortsSlotsByExpert) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t k : {1, 3}) {
      CommandEncoder encoder(device);
      const testing::Poison poison(device);
      HostTensor experts = testing::random_indices({40, k}, 7, 6);
      for (double& e : experts.values) e = e == 2.0 ? 5.0 : e;  // expert 2 gets nothing
      const MoePlan plan = moe_plan(encoder, upload(device, experts), 7);
      encoder.commit_and_wait();
      const std::vector<std::int64_t> wanted = oracle::moe_inverse(integers(experts), 7);
      const auto inverse = plan.inverse.to_vector<std::uint32_t>();
      const auto order = plan.order.to_vector<std::uint32_t>(), rows = plan.rows.to_vector<std::uint32_t>();
      const auto offsets = plan.offsets.to_vector<std::uint32_t>(),
                 expert_of = plan.experts.to_vector<std::uint32_t>();
      EXPECT_EQ(offsets.front(), 0u);
      EXPECT_EQ(offsets[2], offsets[3]);
      EXPECT_EQ(offsets.back(), 40u * k);
      for (std::uint32_t s = 0; s < 40 * k; ++s) {
        ASSERT_EQ(inverse[s], wanted[s]);
        ASSERT_EQ(order[inverse[s]], s);
        ASSERT_EQ(rows[inverse[s]], s / k);
        const auto e = static_cast<std::size_t>(experts.values[s]);
        ASSERT_EQ(expert_of[inverse[s]], e);
        ASSERT_TRUE(offsets[e] <= inverse[s] && inverse[s] < offsets[e + 1]);
      }
    }
  }
}

// Several tiles of the sort, and so many that their counts are added up apart; one digit, and two.
TEST(MoePlan, SameNumbersAsTheCpu) {
  const auto plan_on = [&](const Device& device, std::int64_t tokens, std::int64_t n_experts) {
    CommandEncoder encoder(device);
    const HostTensor experts = testing::random_indices({tokens, 2}, 7, n_experts);
    const MoePlan plan = moe_plan(encoder, upload(device, experts), n_experts);
    encoder.commit_and_wait();
    std::vector<std::vector<std::uint32_t>> all;
    for (const Buffer& b : {plan.order, plan.rows, plan.inverse, plan.offsets, plan.experts})
      all.push_back(b.to_vector<std::uint32_t>());
    return all;
  };
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t tokens : {3000, 66000}) {
      for (const std::int64_t n_experts : {60, 600}) {
        EXPECT_EQ(plan_on(device, tokens, n_experts), plan_on(Device::cpu(), tokens, n_experts))
            << device.name() << " " << tokens << " " << n_experts;
      }
    }
  }
}

TEST(MoePlan, ForeignExpertsComeLast) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer indices = Buffer::from(device, {2, 2}, std::vector<std::uint32_t>{1, 4, 0xffffffff, 0});
    const MoePlan plan = moe_plan(encoder, indices, 3);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range,
                         "moe_plan: index 4 at position 1 is out of range, expected 0 to 2");
    EXPECT_THAT(plan.order.to_vector<std::uint32_t>(), ElementsAre(3, 0, 1, 2));
    EXPECT_THAT(plan.offsets.to_vector<std::uint32_t>(), ElementsAre(0, 1, 2, 2));
  }
}

TEST(MoePlan, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  MIXTAPE_EXPECT_ERROR(moe_plan(encoder, device.alloc(DType::i32, {4, 2}), 3), kInvalid,
                       "moe_plan: indices is i32[4,2], expected u32 [tokens, k]");
  MIXTAPE_EXPECT_ERROR(moe_plan(encoder, device.alloc(DType::u32, {4, 2}), 0), kInvalid, "n_experts is 0");
}

TEST(MoeDispatch, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const std::int64_t cols : {1, 5, 16, 64})
        check_op(device, moe_dispatch_check(device, dtype, 6, 3, cols));
    }
  }
}

TEST(MoeDispatch, RefusesAPlanOfOtherTokens) {
  Tape tape(Device::cpu());
  const Buffer experts = Buffer::from(Device::cpu(), {4, 2}, std::vector<std::uint32_t>(8, 1));
  const MoePlan plan = moe_plan(tape.encoder(), experts, 2);
  const Var x = tape.constant(Device::cpu().alloc(DType::f32, {3, 5}));
  MIXTAPE_EXPECT_ERROR(moe_dispatch(x, plan), kInvalid, "the plan has 8 places, expected some for each of 3");
}

TEST(MoeDispatch, TakesAnEmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::bf16, {0, 5}));
    const MoePlan plan = moe_plan(tape.encoder(), device.alloc(DType::u32, {0, 2}), 4);
    const Var y = moe_dispatch(x, plan);
    EXPECT_EQ(y.shape(), Shape({0, 5}));
    tape.backward(y, device.alloc(DType::bf16, {0, 5}));
    EXPECT_EQ(x.grad().shape(), Shape({0, 5}));
  }
}

TEST(MoeCombine, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, moe_combine_checks(device, dtype));
  }
}

// Terms of 90000 are no f16, their sum is.
TEST(MoeCombine, F16SumsDoNotOverflowOnTheWay) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const std::vector<f16> x = {f16(60000.0f), f16(60000.0f), f16(-60000.0f)};
    const Buffer y = device.alloc(DType::f16, {1, 1});
    moe_combine_forward(encoder, Buffer::from(device, {3, 1}, x),
                        Buffer::from(device, {1, 3}, std::vector<float>{1.5f, 0.5f, 1.0f}),
                        Buffer::from(device, {3}, std::vector<std::uint32_t>{0, 1, 2}), y);
    encoder.commit_and_wait();
    EXPECT_EQ(static_cast<float>(y.to_vector<f16>()[0]), 60000.0f);
  }
}

TEST(MoeCombine, OneGradientAlone) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const auto random = [&](const Shape& shape, std::uint64_t seed) {
      return upload(device, testing::random_tensor(DType::f32, shape, seed));
    };
    const Buffer x = random({12, 9}, 1), weights = random({4, 3}, 2), dy = random({4, 9}, 3);
    const Buffer inverse =
        moe_plan(encoder, upload(device, testing::random_indices({4, 3}, 4, 5)), 5).inverse;
    const Buffer dx = random({12, 9}, 5), dx_alone = random({12, 9}, 6);
    const Buffer dweights = random({4, 3}, 5), dweights_alone = random({4, 3}, 6);
    moe_combine_backward(encoder, x, weights, inverse, dy, {dx, Accumulate::no}, {dweights, Accumulate::no});
    moe_combine_backward(encoder, x, weights, inverse, dy, {dx_alone, Accumulate::no}, {});
    moe_combine_backward(encoder, x, weights, inverse, dy, {}, {dweights_alone, Accumulate::no});
    encoder.commit_and_wait();
    EXPECT_EQ(dx.to_vector<float>(), dx_alone.to_vector<float>());
    EXPECT_EQ(dweights.to_vector<float>(), dweights_alone.to_vector<float>());
  }
}

TEST(MoeCombine, ForeignPlaceCountsAsZero) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer x = Buffer::from(device, {2, 1}, std::vector<float>{3, 5});
    const Buffer weights = Buffer::from(device, {1, 2}, std::vector<float>{2, 2});
    const Buffer inverse = Buffer::from(device, {2}, std::vector<std::uint32_t>{1, 2});
    const Buffer y = device.alloc(DType::f32, {1, 1}), dweights = device.alloc(DType::f32, {1, 2});
    const char* text = "index 2 at position 1 is out of range, expected 0 to 1";
    moe_combine_forward(encoder, x, weights, inverse, y);
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, text);
    EXPECT_THAT(y.to_vector<float>(), ElementsAre(10));
    moe_combine_backward(encoder, x, weights, inverse, y, {}, {dweights, Accumulate::no});
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, text);
    EXPECT_THAT(dweights.to_vector<float>(), ElementsAre(50, 0));
  }
}

TEST(MoeCombine, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {8, 3}), weights = device.alloc(DType::f32, {4, 2});
  const Buffer inverse = device.alloc(DType::u32, {8}), y = device.alloc(DType::f32, {4, 3});
  MIXTAPE_EXPECT_ERROR(moe_combine_forward(encoder, y, weights, inverse, y), kInvalid,
                       "moe_combine: x is f32[4,3], expected [8, cols] for weights f32[4,2]");
  MIXTAPE_EXPECT_ERROR(moe_combine_forward(encoder, x, device.alloc(DType::bf16, {4, 2}), inverse, y),
                       kInvalid, "weights is bf16[4,2], expected f32 [tokens, k]");
  MIXTAPE_EXPECT_ERROR(moe_combine_forward(encoder, x, weights, device.alloc(DType::u32, {7}), y), kInvalid,
                       "inverse is u32[7], expected u32[8]");
  MIXTAPE_EXPECT_ERROR(moe_combine_forward(encoder, x, weights, inverse, x), kInvalid, "y is f32[8,3]");
  MIXTAPE_EXPECT_ERROR(moe_combine_forward(encoder, x, weights, inverse, y, x), kInvalid,
                       "addend is f32[8,3], expected f32[4,3]");
  MIXTAPE_EXPECT_ERROR(moe_combine_backward(encoder, x, weights, inverse, x, {x, Accumulate::no}, {}),
                       kInvalid, "moe_combine_backward: dy is f32[8,3], expected f32[4,3]");
}

}  // namespace
}  // namespace mixtape
