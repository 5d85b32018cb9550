#include "mixtape/ops/norm_rope/norm_rope.h"

#include <cmath>
#include <numeric>

#include "mixtape/ops/norm_rope/norm_rope_check.h"
#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr float kEps = 1e-3f;

TEST(NormRope, E3_MatchesOracleFullAndPartial) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, norm_rope_checks(device, dtype));
  }
}

// Heads as models have them, heads that no warp holds, more tokens than a block takes.
TEST(NormRope, EveryWayToHoldAHead) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_op(device, norm_rope_check(device, {dtype, DType::f32, {1, 7, 5, 256}, 32}));
      check_op(device, norm_rope_check(device, {dtype, dtype, {2, 21, 3, 128}, 64, {}, true}));
      check_op(device, norm_rope_check(device, {dtype, dtype, {1, 3, 3, 80}, 40}));
    }
    check_op(device, norm_rope_check(device, {DType::f32, DType::f32, {1, 5, 2, 600}, 300}));
    check_op(device, norm_rope_check(device, {DType::f32, DType::f32, {30, 41, 1, 8}, 4, {}, true}));
  }
}

struct Gradients {
  std::vector<float> y, dx, dw;
};

RopeTurns turns_at(const Device& device, std::int64_t length) {
  std::vector<std::uint32_t> positions(static_cast<std::size_t>(length));
  std::iota(positions.begin(), positions.end(), 0u);
  return {Buffer::from(device, {length}, positions), Buffer::from(device, {1}, std::vector<float>{1.0f}), {}};
}

// Heads of two dimensions, token by token; the upstream gradient is of ones.
Gradients run(const Device& device, const Shape& shape, const std::vector<float>& x,
              const std::vector<float>& w, float eps) {
  Tape tape(device);
  const Var vx = tape.parameter(Buffer::from(device, shape, x));
  const Var vw = tape.parameter(Buffer::from(device, {shape.cols()}, w));
  const Var y = norm_rope(vx, vw, eps, turns_at(device, shape[1]));
  tape.backward(y, Buffer::from(device, shape, std::vector<float>(x.size(), 1.0f)));
  tape.encoder().commit_and_wait();
  return {y.value().to_vector<float>(), vx.grad().to_vector<float>(), vw.grad().to_vector<float>()};
}

TEST(NormRope, D1_D2_HeadOfZeros) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {1, 1, 1, 2}, {0, 0}, {1, -3}, 1e-6f);
    EXPECT_EQ(g.y, std::vector<float>(2, 0.0f));
    EXPECT_EQ(g.dw, std::vector<float>(2, 0.0f));
    EXPECT_NEAR(g.dx[0], 1000.0, 1e-3);
    EXPECT_NEAR(g.dx[1], -3000.0, 3e-3);
  }
}

TEST(NormRope, D3_WeightOfZero) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {1, 1, 1, 2}, {3, 4}, {0, 1}, 1e-9f);
    EXPECT_NEAR(g.dw[0], 3.0 / std::sqrt(12.5), 1e-6);
    EXPECT_NEAR(g.dw[1], 4.0 / std::sqrt(12.5), 1e-6);
    for (const float d : g.dx) EXPECT_TRUE(std::isfinite(d));
  }
}

// At position 1 the head (n0, n1) is turned by one radian.
TEST(NormRope, TurnsWhatItNormalised) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {1, 2, 1, 2}, {3, 4, 3, 4}, {2, 1}, 1e-9f);
    const double n0 = 6.0 / std::sqrt(12.5), n1 = 4.0 / std::sqrt(12.5);
    EXPECT_NEAR(g.y[0], n0, 1e-6);
    EXPECT_NEAR(g.y[1], n1, 1e-6);
    EXPECT_NEAR(g.y[2], n0 * std::cos(1.0) - n1 * std::sin(1.0), 1e-6);
    EXPECT_NEAR(g.y[3], n1 * std::cos(1.0) + n0 * std::sin(1.0), 1e-6);
  }
}

TEST(NormRope, NanStaysInItsHead) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {1, 1, 2, 2}, {1, NAN, 1, 2}, {1, 1}, kEps);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(std::isnan(g.y[i]), i < 2) << i;
      EXPECT_EQ(std::isnan(g.dx[i]), i < 2) << i;
    }
  }
}

TEST(NormRope, OneGradientAloneAndInPlace) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t dims : {16, 18}) {
      const Shape shape{2, 35, 3, dims};
      const Buffer x = upload(device, testing::random_tensor(DType::f32, shape, 1));
      const Buffer w = upload(device, testing::random_tensor(DType::f32, {dims}, 2));
      const Buffer dy = upload(device, testing::random_tensor(DType::f32, shape, 3));
      const auto make = [&](const Shape& s) { return device.alloc_uninitialized(DType::f32, s); };
      const Buffer y = make(shape), rstd = make({210}), dx = make(shape), dw = make({dims}),
                   alone = make({dims});
      const RopeTurns turns = turns_at(device, 35);
      CommandEncoder encoder(device);
      norm_rope_forward(encoder, x, w, kEps, turns, y, rstd);
      norm_rope_backward(encoder, x, w, rstd, turns, dy, {dx, Accumulate::no}, {dw, Accumulate::no});
      norm_rope_backward(encoder, x, w, rstd, turns, dy, {}, {alone, Accumulate::no});
      norm_rope_backward(encoder, x, w, rstd, turns, dy, {dy, Accumulate::no}, {});
      encoder.commit_and_wait();
      EXPECT_EQ(dw.to_vector<float>(), alone.to_vector<float>());
      EXPECT_EQ(dx.to_vector<float>(), dy.to_vector<float>());
    }
  }
}

// Beside an f32 pass through both ops only the order of a head's sum may differ.
TEST(NormRope, IsTheRotationOfTheNorm) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.constant(upload(device, testing::random_tensor(DType::f32, {2, 3, 2, 64}, 1)));
    const Var w = tape.constant(upload(device, testing::random_tensor(DType::f32, {64}, 2)));
    const RopeTurns turns = turns_at(device, 3);
    const Var one = norm_rope(x, w, kEps, turns);
    const Var two = rope(rms_norm(x, w, kEps), turns.positions, turns.inv_freq);
    tape.encoder().commit_and_wait();
    const auto a = one.value().to_vector<float>(), b = two.value().to_vector<float>();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
  }
}

TEST(NormRope, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {0, 3, 1, 2}, {}, {1, 1}, kEps);
    EXPECT_TRUE(g.y.empty() && g.dx.empty());
    EXPECT_EQ(g.dw, std::vector<float>(2, 0.0f));
  }
}

TEST(NormRope, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {2, 3, 4, 2}), w = device.alloc(DType::f32, {2});
  const Buffer rstd = device.alloc(DType::f32, {24});
  const RopeTurns turns = turns_at(device, 3);
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(norm_rope_forward(encoder, w, w, kEps, turns, w, rstd), code,
                       "norm_rope: x is f32[2], expected [batch, length, heads, head_dim]");
  MIXTAPE_EXPECT_ERROR(norm_rope_forward(encoder, x, rstd, kEps, turns, x, rstd), code,
                       "norm_rope: w is f32[24], expected f32 or f32 [2] for x f32[2,3,4,2]");
  MIXTAPE_EXPECT_ERROR(norm_rope_forward(encoder, x, w, 0.0f, turns, x, rstd), code, "eps is 0");
  MIXTAPE_EXPECT_ERROR(norm_rope_forward(encoder, x, w, kEps, turns, x, w), code,
                       "norm_rope: rstd is f32[2]");
  MIXTAPE_EXPECT_ERROR(norm_rope_forward(encoder, x, w, kEps, turns_at(device, 4), x, rstd), code,
                       "norm_rope: positions is u32[4], expected u32 [2,3] or [3]");
  MIXTAPE_EXPECT_ERROR(norm_rope_backward(encoder, x, w, rstd, turns, w, {x, Accumulate::no}, {}), code,
                       "norm_rope_backward: dy is f32[2], expected f32[2,3,4,2] like x");
}

}  // namespace
}  // namespace mixtape
