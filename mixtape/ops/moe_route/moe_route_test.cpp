#include "mixtape/ops/moe_route/moe_route.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "mixtape/ops/moe_route/moe_route_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::OpCheck;

OpCheck route_check(DType dtype, std::int64_t tokens, std::int64_t experts, std::int64_t k, bool normalise) {
  const auto e = static_cast<std::size_t>(experts), n = static_cast<std::size_t>(k);
  OpCheck check;
  check.name = str("moe_route ", dtype, " ", tokens, "x", experts, " k ", k, normalise ? " normalised" : "");
  check.inputs = {testing::random_tensor(dtype, {tokens, experts}, 3, 2.0)};
  check.op = [=](const std::vector<Var>& v) { return moe_route(v[0], k, normalise).weights; };
  check.forward = [=](const auto& x) { return oracle::moe_weights(x[0], e, n, normalise); };
  check.complex_forward = [=](const auto& x) { return oracle::moe_weights(x[0], e, n, normalise); };
  check.backward = [=](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::moe_route_backward(x[0], e, n, normalise, dy)};
  };
  check.forward_bound = {6.0 + 2.0 * 12.0, 1e-30};
  check.backward_bound = {1.0, (24.0 + static_cast<double>(k) + 8.0) * 0x1p-23 * 4.0};
  return check;
}

TEST(MoeRoute, G5_MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const bool normalise : {false, true}) {
        for (const auto& [experts, k] : {std::pair(4, 2), {8, 1}, {8, 8}, {5, 3}, {33, 4}}) {
          check_op(device, route_check(dtype, 3, experts, k, normalise));
        }
      }
    }
  }
}

TEST(MoeRoute, F5_OneNormalisedExpertHasNoGradient) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(testing::upload(device, testing::random_tensor(DType::f32, {5, 6}, 1)));
    const Var w = moe_route(x, 1, true).weights;
    tape.backward(w, testing::upload(device, testing::random_tensor(DType::f32, {5, 1}, 2)));
    tape.encoder().commit_and_wait();
    for (const float v : w.value().to_vector<float>()) EXPECT_EQ(v, 1.0f);
    for (const float v : x.grad().to_vector<float>()) EXPECT_EQ(v, 0.0f);
  }
}

TEST(MoeRoute, G3_AllExpertsArePermutedAndMoreAreRefused) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {1, 4}, std::vector<float>{1, 3, 3, 2}));
    const Buffer indices = moe_route(x, 4, true).indices;
    tape.encoder().commit_and_wait();
    EXPECT_EQ(indices.to_vector<std::uint32_t>(), (std::vector<std::uint32_t>{1, 2, 3, 0}));
    MIXTAPE_EXPECT_ERROR(moe_route(x, 5, true), ErrorCode::invalid_argument, "k is 5, expected 1 to 4");
  }
}

TEST(MoeRoute, NanGoesFirstAndStays) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(Buffer::from(device, {1, 4}, std::vector<float>{1, 3, NAN, 2}));
    const MoeRoute route = moe_route(x, 2, true);
    tape.encoder().commit_and_wait();
    EXPECT_EQ(route.indices.to_vector<std::uint32_t>()[0], 2u);
    EXPECT_TRUE(std::isnan(route.weights.value().to_vector<float>()[0]));
  }
}

struct Plan {
  MoePlan plan;
  std::vector<std::size_t> inverse;
};

Plan plan_of(CommandEncoder& encoder, const testing::HostTensor& indices, std::int64_t experts) {
  const testing::Poison poison(encoder.device());
  Plan p{moe_plan(encoder, testing::upload(encoder.device(), indices), experts), {}};
  encoder.commit_and_wait();
  for (const std::uint32_t i : p.plan.inverse.to_vector<std::uint32_t>()) p.inverse.push_back(i);
  return p;
}

TEST(MoePlan, SortsStablyByExpert) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const testing::HostTensor indices = testing::random_indices({50, 3}, 5, 7);
    const MoePlan plan = plan_of(encoder, indices, 9).plan;
    std::vector<std::uint32_t> wanted(150);
    std::iota(wanted.begin(), wanted.end(), 0u);
    std::stable_sort(wanted.begin(), wanted.end(),
                     [&](auto a, auto b) { return indices.values[a] < indices.values[b]; });
    const auto order = plan.order.to_vector<std::uint32_t>(), rows = plan.rows.to_vector<std::uint32_t>();
    const auto inverse = plan.inverse.to_vector<std::uint32_t>(),
               offsets = plan.offsets.to_vector<std::uint32_t>();
    EXPECT_EQ(order, wanted);
    for (std::uint32_t i = 0; i < 150; ++i) {
      EXPECT_EQ(rows[i], order[i] / 3);
      EXPECT_EQ(inverse[order[i]], i);
      const auto expert = static_cast<std::size_t>(indices.values[order[i]]);
      EXPECT_GE(i, offsets[expert]);
      EXPECT_LT(i, offsets[expert + 1]);
    }
    EXPECT_EQ(offsets[9], 150u);
  }
}

TEST(MoePlan, C10_ExpertOutsideIsNamed) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  moe_plan(encoder, Buffer::from(device, {2, 2}, std::vector<std::uint32_t>{0, 1, 9, 8}), 4);
  MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::index_out_of_range, "index 9 at position 2");
}

TEST(MoeCombine, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const std::int64_t cols : {1, 7, 40}) {
        CommandEncoder encoder(device);
        const Plan p = plan_of(encoder, testing::random_indices({6, 2}, 5, 4), 4);
        OpCheck check;
        check.name = str("moe_combine ", dtype, " ", cols);
        check.inputs = {testing::random_tensor(dtype, {12, cols}, 1),
                        testing::random_tensor(DType::f32, {6, 2}, 2)};
        check.op = [&](const std::vector<Var>& v) { return moe_combine(v[0], v[1], p.plan); };
        check.forward = [&](const auto& x) { return oracle::moe_combine(x[0], x[1], p.inverse, 2); };
        check.backward = [&](const auto& x, const Doubles& dy) {
          return oracle::moe_combine_backward(x[0], x[1], p.inverse, 2, dy);
        };
        check.forward_bound = {1.0, 2 * 0x1p-24 * 16.0};
        check.backward_bound = {
            1.0, (static_cast<double>(cols) / 8 + 8) * 0x1p-24 * 4.0 * static_cast<double>(cols)};
        check_op(device, check);
      }
    }
  }
}

}  // namespace
}  // namespace mixtape
