#include "mixtape/ops/moe_route/moe_route.h"

#include <gmock/gmock.h>

#include <cmath>

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/elementwise/scale_rows.h"
#include "mixtape/ops/moe_route/moe_route_check.h"
#include "mixtape/ops/reduce/reduce.h"
#include "mixtape/ops/softmax/softmax.h"
#include "mixtape/ops/take_along_axis/take_along_axis.h"
#include "mixtape/ops/top_k/top_k.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::HostTensor;

constexpr auto kInvalid = ErrorCode::invalid_argument;

TEST(MoeRoute, G5_MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_ops(device, moe_route_checks(device, dtype));
      for (const bool normalise : {false, true}) {
        check_op(device, moe_route_check(dtype, 3, 500, 10, normalise));
        check_op(device, moe_route_check(dtype, 3, 600, 40, normalise));
      }
    }
  }
}

// softmax over all experts, the k largest, gathered, divided by their sum.
Var composed_route(const Var& logits, const Buffer& indices, bool normalise) {
  const Var scores = take_along_axis(softmax(logits), indices);
  if (!normalise) return scores;
  const Buffer ones = scores.tape().alloc(DType::f32, {scores.shape()[0]});
  scores.tape().encoder().fill(ones, 1.0f);
  return scale_rows(scores, scores.tape().constant(ones) / row_sum(scores));
}

TEST(MoeRoute, EqualsTheComposition) {
  for (const Device& device : testing::test_devices()) {
    for (const bool normalise : {false, true}) {
      Tape tape(device);
      const Var fused_logits =
          tape.parameter(upload(device, testing::random_tensor(DType::f32, {50, 60}, 1)));
      const Var logits = tape.parameter(fused_logits.value());
      const Buffer dy = upload(device, testing::random_tensor(DType::f32, {50, 6}, 2));
      const MoeRoute route = moe_route(fused_logits, 6, normalise);
      const Var composed = composed_route(logits, route.indices, normalise);
      const Buffer ranked = top_k(softmax(logits), 6).indices;
      tape.backward(route.weights, dy);
      tape.backward(composed, dy);
      tape.encoder().commit_and_wait();
      EXPECT_EQ(route.indices.to_vector<std::uint32_t>(), ranked.to_vector<std::uint32_t>());
      const HostTensor w = testing::download(composed.value()), d = testing::download(logits.grad());
      testing::expect_close("weights", route.weights.value(), w.values, {30.0, 0.0});
      testing::expect_close("dlogits", fused_logits.grad(), d.values, {0.0, 90 * 0x1p-24 * 4.0});
    }
  }
}

TEST(MoeRoute, G5_ChosenWeightsByHand) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var logits = tape.constant(Buffer::from(device, {1, 4}, std::vector<float>{0, 2, 1, -1}));
    const MoeRoute whole = moe_route(logits, 2, false), normalised = moe_route(logits, 2, true);
    const double sum = 1 + std::exp(2.0) + std::exp(1.0) + std::exp(-1.0);
    const std::vector<float> a = whole.weights.value().to_vector<float>();
    const std::vector<float> b = normalised.weights.value().to_vector<float>();
    EXPECT_THAT(whole.indices.to_vector<std::uint32_t>(), ElementsAre(1, 2));
    EXPECT_NEAR(a[0], std::exp(2.0) / sum, 1e-6);
    EXPECT_NEAR(a[1], std::exp(1.0) / sum, 1e-6);
    EXPECT_NEAR(b[0], 1 / (1 + std::exp(-1.0)), 1e-6);
    EXPECT_NEAR(b[1], 1 / (1 + std::exp(1.0)), 1e-6);
  }
}

TEST(MoeRoute, F5_OneNormalisedExpertHasNoGradient) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var logits = tape.parameter(upload(device, testing::random_tensor(DType::f32, {9, 5}, 1)));
    const Var weights = moe_route(logits, 1, true).weights;
    tape.backward(weights, upload(device, testing::random_tensor(DType::f32, {9, 1}, 2)));
    tape.encoder().commit_and_wait();
    EXPECT_THAT(weights.value().to_vector<float>(), Each(1.0f));
    EXPECT_THAT(logits.grad().to_vector<float>(), Each(0.0f));
  }
}

TEST(MoeRoute, G3_AllExpertsOrTooMany) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var logits = tape.constant(upload(device, testing::random_tensor(DType::f32, {7, 8}, 1)));
    const MoeRoute route = moe_route(logits, 8, false);
    std::vector<std::uint32_t> seen(8);
    for (const std::uint32_t e : route.indices.to_vector<std::uint32_t>()) ++seen[e];
    EXPECT_THAT(seen, Each(7u));
    MIXTAPE_EXPECT_ERROR(moe_route(logits, 16, false), kInvalid,
                         "moe_route: k is 16, expected 1 to the 8 experts of logits");
  }
}

TEST(MoeRoute, NanFillsItsRow) {
  for (const Device& device : testing::test_devices()) {
    for (const bool normalise : {false, true}) {
      Tape tape(device);
      const Var logits =
          tape.parameter(Buffer::from(device, {2, 3}, std::vector<float>{1, 2, NAN, 1, 2, -HUGE_VALF}));
      const auto [weights, indices] = moe_route(logits, 2, normalise);
      EXPECT_THAT(indices.to_vector<std::uint32_t>(), ElementsAre(2, 1, 1, 0));
      tape.backward(weights, Buffer::from(device, {2, 2}, std::vector<float>{1, 2, 3, 4}));
      const std::vector<float> w = weights.value().to_vector<float>();
      const std::vector<float> d = logits.grad().to_vector<float>();
      EXPECT_TRUE(std::isnan(w[0]) && std::isnan(w[1]));
      EXPECT_NEAR(w[3], 1 / (1 + std::exp(1.0)), 1e-6);
      EXPECT_EQ(d[5], 0.0f);
    }
  }
}

TEST(MoeRoute, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var logits = tape.parameter(device.alloc(DType::f32, {0, 4}));
    const Var x = tape.parameter(device.alloc(DType::bf16, {0, 3}));
    const MoeRoute route = moe_route(logits, 2, true);
    const MoePlan plan = moe_plan(tape.encoder(), route.indices, 4);
    const Var y = moe_combine(x, route.weights, plan);
    tape.backward(y, y.value());
    EXPECT_EQ(y.shape(), (Shape{0, 3}));
    EXPECT_THAT(plan.offsets.to_vector<std::uint32_t>(), Each(0u));
    EXPECT_EQ(x.grad().shape(), x.shape());
    EXPECT_EQ(logits.grad().shape(), logits.shape());
  }
}

TEST(MoeRoute, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer logits = device.alloc(DType::f32, {4, 8}), weights = device.alloc(DType::f32, {4, 2});
  const Buffer indices = device.alloc(DType::u32, {4, 2});
  MIXTAPE_EXPECT_ERROR(
      moe_route_forward(encoder, device.alloc(DType::f32, {2, 4, 8}), weights, indices, true), kInvalid,
      "moe_route: logits is f32[2,4,8], expected [tokens, experts]");
  MIXTAPE_EXPECT_ERROR(moe_route_forward(encoder, logits, device.alloc(DType::bf16, {4, 2}), indices, true),
                       kInvalid, "weights is bf16[4,2], expected f32[4,2]");
  MIXTAPE_EXPECT_ERROR(moe_route_forward(encoder, device.alloc(DType::f32, {0, 8}), weights, indices, true),
                       kInvalid, "weights is f32[4,2], expected f32[0,2]");
  MIXTAPE_EXPECT_ERROR(moe_route_backward(encoder, logits, weights, indices, logits, logits, true), kInvalid,
                       "moe_route_backward: dweights is f32[4,8], expected f32[4,2]");
  Buffer bad = Buffer::from(device, {4, 2}, std::vector<std::uint32_t>{0, 1, 2, 8, 9, 0, 1, 2});
  moe_route_backward(encoder, logits, weights, bad, weights, device.alloc(DType::f32, {4, 8}), false);
  MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::index_out_of_range, "index 8 at position 3");
}

}  // namespace
}  // namespace mixtape
