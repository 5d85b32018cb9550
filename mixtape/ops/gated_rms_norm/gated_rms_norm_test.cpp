#include "mixtape/ops/gated_rms_norm/gated_rms_norm.h"

#include <cmath>

#include "mixtape/ops/gated_rms_norm/gated_rms_norm_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr float kEps = 1e-3f;

TEST(GatedRmsNorm, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, gated_rms_norm_checks(device, dtype));
  }
}

// From rows that share a warp to rows that no block holds; more rows than a block takes.
TEST(GatedRmsNorm, EveryWayToHoldARow) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      const std::int64_t pack = static_cast<std::int64_t>(16 / size_of(dtype));
      for (const std::int64_t packs : {2, 20, 100, 400, 600})
        check_op(device, gated_rms_norm_check(dtype, DType::f32, {packs < 50 ? 37 : 5, packs * pack}));
      check_op(device, gated_rms_norm_check(dtype, dtype, {5, 2501}));
    }
    check_op(device, gated_rms_norm_check(DType::f32, DType::f32, {2, 2100 * 4}));
    check_op(device, gated_rms_norm_check(DType::f32, DType::f32, {2100, 5}));
  }
}

TEST(GatedRmsNorm, GradientsOfSome) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {16, 17}) {
      testing::OpCheck check = gated_rms_norm_check(DType::f32, DType::f32, {5, cols});
      for (const std::vector<bool>& wanted : {std::vector<bool>{true, false, false},
                                              {false, true, false},
                                              {false, false, true},
                                              {true, false, true}}) {
        check.differentiable = wanted;
        check_op(device, check);
      }
    }
  }
}

struct Result {
  std::vector<float> y, dx, dz, dw;
};
Result run(const Device& device, const Shape& shape, const std::vector<float>& x, const std::vector<float>& z,
           const std::vector<float>& w, float eps) {
  Tape tape(device);
  const Var vx = tape.parameter(Buffer::from(device, shape, x));
  const Var vz = tape.parameter(Buffer::from(device, shape, z));
  const Var vw = tape.parameter(Buffer::from(device, {shape.cols()}, w));
  const Var y = gated_rms_norm(vx, vz, vw, eps);
  tape.backward(y, Buffer::from(device, shape, std::vector<float>(x.size(), 1.0f)));
  tape.encoder().commit_and_wait();
  return {y.value().to_vector<float>(), vx.grad().to_vector<float>(), vz.grad().to_vector<float>(),
          vw.grad().to_vector<float>()};
}

TEST(GatedRmsNorm, D1_D2_RowOfZeros) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {1, 2}, {0, 0}, {2, -1}, {3, 1}, 1e-6f);
    const double silu2 = 2.0 / (1.0 + std::exp(-2.0)), silu1 = -1.0 / (1.0 + std::exp(1.0));
    EXPECT_EQ(r.y, std::vector<float>(2, 0.0f));
    EXPECT_EQ(r.dz, std::vector<float>(2, 0.0f));
    EXPECT_EQ(r.dw, std::vector<float>(2, 0.0f));
    EXPECT_NEAR(r.dx[0] / (3000.0 * silu2), 1.0, 1e-6);
    EXPECT_NEAR(r.dx[1] / (1000.0 * silu1), 1.0, 1e-6);
  }
}

TEST(GatedRmsNorm, D3_WeightOfZero) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {1, 2}, {3, 4}, {1, 1}, {0, 1}, 1e-9f);
    const double silu = 1.0 / (1.0 + std::exp(-1.0));
    EXPECT_NEAR(r.dw[0], silu * 3.0 / std::sqrt(12.5), 1e-6);
    for (const float d : r.dx) EXPECT_TRUE(std::isfinite(d));
  }
}

TEST(GatedRmsNorm, B2_GateAtInfinity) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {1, 2}, {1, 1}, {-HUGE_VALF, 1}, {1, 1}, kEps);
    EXPECT_EQ(r.y[0], 0.0f);
    EXPECT_EQ(r.dz[0], 0.0f);
    EXPECT_EQ(r.dw[0], 0.0f);
    EXPECT_TRUE(std::isfinite(r.dx[0]) && std::isfinite(r.dx[1]));
  }
}

TEST(GatedRmsNorm, NanStaysInItsRow) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {2, 2}, {1, NAN, 1, 2}, {1, 1, 1, 1}, {1, 1}, kEps);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(std::isnan(r.y[i]), i < 2) << i;
      EXPECT_EQ(std::isnan(r.dx[i]), i < 2) << i;
      EXPECT_EQ(std::isnan(r.dz[i]), i < 2) << i;
    }
  }
}

TEST(GatedRmsNorm, InPlace) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {40, 41}) {
      const Shape shape{70, cols};
      const auto random = [&](std::uint64_t seed) {
        return upload(device, testing::random_tensor(DType::f32, shape, seed));
      };
      const auto make = [&](const Shape& s) { return device.alloc_uninitialized(DType::f32, s); };
      const Buffer x = random(1), z = random(2), same_z = random(2), dy = random(3), y = make(shape);
      const Buffer w = upload(device, testing::random_tensor(DType::f32, {cols}, 4));
      const Buffer rstd = make({70}), dx = make(shape), dz = make(shape);
      CommandEncoder encoder(device);
      gated_rms_norm_forward(encoder, x, z, w, kEps, y, rstd);
      gated_rms_norm_backward(encoder, x, z, w, rstd, dy, {dx, Accumulate::no}, {dz, Accumulate::no}, {});
      gated_rms_norm_backward(encoder, x, same_z, w, rstd, dy, {dy, Accumulate::no}, {same_z, Accumulate::no},
                              {});
      gated_rms_norm_forward(encoder, x, z, w, kEps, z, rstd);
      encoder.commit_and_wait();
      EXPECT_EQ(dx.to_vector<float>(), dy.to_vector<float>());
      EXPECT_EQ(dz.to_vector<float>(), same_z.to_vector<float>());
      EXPECT_EQ(y.to_vector<float>(), z.to_vector<float>());
    }
  }
}

TEST(GatedRmsNorm, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {0, 3}, {}, {}, {1, 1, 1}, kEps);
    EXPECT_TRUE(r.y.empty() && r.dx.empty() && r.dz.empty());
    EXPECT_EQ(r.dw, std::vector<float>(3, 0.0f));
  }
}

TEST(GatedRmsNorm, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8}), w = device.alloc(DType::f32, {8});
  const Buffer rstd = device.alloc(DType::f32, {4});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(gated_rms_norm_forward(encoder, x, w, w, kEps, x, rstd), code,
                       "gated_rms_norm: z is f32[8], expected f32[4,8] like x");
  MIXTAPE_EXPECT_ERROR(gated_rms_norm_forward(encoder, x, x, rstd, kEps, x, rstd), code,
                       "gated_rms_norm: w is f32[4], expected f32 or f32 [8] for x f32[4,8]");
  MIXTAPE_EXPECT_ERROR(gated_rms_norm_forward(encoder, x, x, w, -1.0f, x, rstd), code, "eps is -1");
  MIXTAPE_EXPECT_ERROR(gated_rms_norm_forward(encoder, x, x, w, kEps, x, w), code, "rstd is f32[8]");
  const Buffer d = device.alloc(DType::f32, {4, 8});
  MIXTAPE_EXPECT_ERROR(
      gated_rms_norm_backward(encoder, x, x, w, rstd, d, {d, Accumulate::no}, {d, Accumulate::no}, {}), code,
      "gated_rms_norm_backward: dz shares memory with dx");
  MIXTAPE_EXPECT_ERROR(gated_rms_norm_backward(encoder, x, x, w, rstd, d, {x, Accumulate::no}, {}, {}), code,
                       "dx shares memory with an input");
}

}  // namespace
}  // namespace mixtape
