#include "mixtape/ops/rms_norm/rms_norm.h"

#include <cmath>

#include "mixtape/ops/rms_norm/rms_norm_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr float kEps = 1e-3f;

TEST(RmsNorm, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, rms_norm_checks(device, dtype));
  }
}

TEST(RmsNorm, A10_EveryWidthTo130) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (std::int64_t cols = 1; cols <= 130; ++cols)
        check_op(device, rms_norm_check(dtype, dtype, {2, cols}), 1);
    }
  }
}

TEST(RmsNorm, ManyRowsAndWideRows) {
  for (const Device& device : testing::test_devices()) {
    check_op(device, rms_norm_check(DType::f32, DType::f32, {97, 33}));
    check_op(device, rms_norm_check(DType::f32, DType::f32, {4100, 5}));
    check_op(device, rms_norm_check(DType::bf16, DType::f32, {3, 20000}));
    check_op(device, rms_norm_check(DType::f16, DType::f16, {3, 20000}));
  }
}

// From rows that share a warp to rows of many packs per thread.
TEST(RmsNorm, EveryWayToHoldARow) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {8, 24, 128, 192, 400, 1000, 3000, 5000}) {
      check_op(device, rms_norm_check(DType::f32, DType::f32, {cols < 500 ? 70 : 9, cols}));
      for (const DType half : {DType::bf16, DType::f16}) {
        check_op(device, rms_norm_check(half, half, {cols < 500 ? 70 : 9, 2 * cols}));
        check_op(device, rms_norm_check(half, DType::f32, {cols < 500 ? 70 : 9, 2 * cols}));
      }
    }
  }
}

struct Gradients {
  std::vector<float> y, dx, dw;
};

Gradients run(const Device& device, const Shape& shape, const std::vector<float>& x,
              const std::vector<float>& w, const std::vector<float>& dy, float eps) {
  Tape tape(device);
  const Var vx = tape.parameter(Buffer::from(device, shape, x));
  const Var vw = tape.parameter(Buffer::from(device, {shape.cols()}, w));
  const Var y = rms_norm(vx, vw, eps);
  tape.backward(y, Buffer::from(device, shape, dy));
  tape.encoder().commit_and_wait();
  return {y.value().to_vector<float>(), vx.grad().to_vector<float>(), vw.grad().to_vector<float>()};
}

TEST(RmsNorm, D1_D2_RowOfZeros) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {1, 4}, {0, 0, 0, 0}, {1, 2, -3, 0.5f}, {1, 1, 2, -4}, 1e-6f);
    const std::vector<float> wanted = {1000, 2000, -6000, -2000};
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(g.y[i], 0.0f);
      EXPECT_NEAR(g.dx[i], wanted[i], 1e-6 * std::abs(wanted[i]));
      EXPECT_EQ(g.dw[i], 0.0f);
    }
  }
}

TEST(RmsNorm, D1_OneLargeElement) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {1, 4}, {1000, 0, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}, 1e-6f);
    EXPECT_NEAR(g.y[0], 2.0, 1e-6);  // 1000/sqrt(1e6/4): eps is not scaled by the maximum
    EXPECT_EQ(g.y[1], 0.0f);
    EXPECT_NEAR(g.dx[1], 0.002, 1e-9);
  }
}

TEST(RmsNorm, D3_WeightOfZero) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {1, 2}, {3, 4}, {0, 1}, {1, 1}, 1e-9f);
    const double rstd = 1.0 / std::sqrt(12.5);
    EXPECT_NEAR(g.dw[0], 3.0 * rstd, 1e-6);
    EXPECT_NEAR(g.dw[1], 4.0 * rstd, 1e-6);
    for (const float d : g.dx) EXPECT_TRUE(std::isfinite(d));
  }
}

// In bf16 a sum of ones sticks at 256.
TEST(RmsNorm, D5_WeightGradientOfManyBf16Rows) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::vector<bf16> ones(4096 * 8, bf16(1.0f));
    const Var x = tape.constant(Buffer::from(device, {4096, 8}, ones));
    const Var w = tape.parameter(Buffer::from(device, {8}, std::vector<bf16>(8, bf16(2.0f))));
    tape.backward(rms_norm(x, w, 1e-6f), x.value());
    tape.encoder().commit_and_wait();
    for (const bf16 d : w.grad().to_vector<bf16>()) EXPECT_EQ(static_cast<float>(d), 4096.0f);
  }
}

// The square of 60000 is no f16, nor is the sum of a row.
TEST(RmsNorm, F16SquaresDoNotOverflow) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {8, 33, 2048}) {
      Tape tape(device);
      const auto n = static_cast<std::size_t>(cols);
      std::vector<f16> x(n, f16(60000.0f));
      x[1] = f16(-60000.0f);
      const Var vx = tape.parameter(Buffer::from(device, {1, cols}, x));
      const Var w = tape.parameter(Buffer::from(device, {cols}, std::vector<f16>(n, f16(2.0f))));
      const Var y = rms_norm(vx, w, kEps);
      tape.backward(y, Buffer::from(device, {1, cols}, std::vector<f16>(n, f16(1.0f))));
      tape.encoder().commit_and_wait();
      const auto found = y.value().to_vector<f16>(), dw = w.grad().to_vector<f16>();
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(static_cast<float>(found[i]), i == 1 ? -2.0f : 2.0f) << device.name() << " " << cols;
        ASSERT_EQ(static_cast<float>(dw[i]), i == 1 ? -1.0f : 1.0f) << device.name() << " " << cols;
      }
    }
  }
}

TEST(RmsNorm, NanStaysInItsRow) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {2, 3}, {1, NAN, 2, 1, 2, 3}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}, kEps);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(std::isnan(g.y[i]), i < 3) << i;
      EXPECT_EQ(std::isnan(g.dx[i]), i < 3) << i;
    }
  }
}

TEST(RmsNorm, OneGradientAloneAndInPlace) {
  for (const Device& device : testing::test_devices()) {
    const Shape shape{70, 40};
    const Buffer x = upload(device, testing::random_tensor(DType::f32, shape, 1));
    const Buffer w = upload(device, testing::random_tensor(DType::f32, {40}, 2));
    const Buffer dy = upload(device, testing::random_tensor(DType::f32, shape, 3));
    const auto make = [&](const Shape& s) { return device.alloc_uninitialized(DType::f32, s); };
    const Buffer y = make(shape), rstd = make({70}), dx = make(shape), dw = make({40}), dw_alone = make({40});
    CommandEncoder encoder(device);
    rms_norm_forward(encoder, x, w, kEps, y, rstd);
    rms_norm_backward(encoder, x, w, rstd, dy, {dx, Accumulate::no}, {dw, Accumulate::no});
    rms_norm_backward(encoder, x, w, rstd, dy, {}, {dw_alone, Accumulate::no});
    rms_norm_backward(encoder, x, w, rstd, dy, {dy, Accumulate::no}, {});
    encoder.commit_and_wait();
    EXPECT_EQ(dw.to_vector<float>(), dw_alone.to_vector<float>());
    EXPECT_EQ(dx.to_vector<float>(), dy.to_vector<float>());
  }
}

TEST(RmsNorm, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    const Gradients g = run(device, {0, 3}, {}, {1, 1, 1}, {}, kEps);
    EXPECT_TRUE(g.y.empty() && g.dx.empty());
    EXPECT_EQ(g.dw, std::vector<float>(3, 0.0f));
  }
}

TEST(RmsNorm, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8}), w = device.alloc(DType::f32, {8});
  const Buffer rstd = device.alloc(DType::f32, {4});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(rms_norm_forward(encoder, device.alloc(DType::f32, {}), w, kEps, x, rstd), code,
                       "rms_norm: x is f32[], expected f32, bf16 or f16 of rank 1 or more");
  MIXTAPE_EXPECT_ERROR(rms_norm_forward(encoder, x, device.alloc(DType::bf16, {8}), kEps, x, rstd), code,
                       "rms_norm: w is bf16[8], expected f32 or f32 [8] for x f32[4,8]");
  MIXTAPE_EXPECT_ERROR(rms_norm_forward(encoder, x, device.alloc(DType::f32, {4}), kEps, x, rstd), code,
                       "w is f32[4]");
  MIXTAPE_EXPECT_ERROR(rms_norm_forward(encoder, device.alloc(DType::f32, {4, 0}),
                                        device.alloc(DType::f32, {0}), kEps, x, rstd),
                       code, "a last dimension of 1 or more");
  MIXTAPE_EXPECT_ERROR(rms_norm_forward(encoder, x, w, 0.0f, x, rstd), code, "eps is 0");
  MIXTAPE_EXPECT_ERROR(rms_norm_forward(encoder, x, w, kEps, x, w), code, "rms_norm: rstd is f32[8]");
  MIXTAPE_EXPECT_ERROR(rms_norm_backward(encoder, x, w, rstd, w, {x, Accumulate::no}, {}), code,
                       "rms_norm_backward: dy is f32[8], expected f32[4,8] like x");
  const Buffer half = device.alloc(DType::f16, {4, 8});
  MIXTAPE_EXPECT_ERROR(rms_norm_forward(encoder, half, device.alloc(DType::bf16, {8}), kEps, half, rstd),
                       code, "rms_norm: w is bf16[8], expected f16 or f32 [8] for x f16[4,8]");
}

}  // namespace
}  // namespace mixtape
