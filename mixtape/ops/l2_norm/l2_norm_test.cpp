#include "mixtape/ops/l2_norm/l2_norm.h"

#include <cmath>

#include "mixtape/ops/l2_norm/l2_norm_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(L2Norm, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, l2_norm_checks(device, dtype));
  }
}

// From rows that share a warp to rows that no block holds.
TEST(L2Norm, EveryWayToHoldARow) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      const std::int64_t pack = static_cast<std::int64_t>(16 / size_of(dtype));
      for (const std::int64_t packs : {2, 20, 50, 100, 300, 2100})
        check_op(device, l2_norm_check(dtype, {packs < 200 ? 37 : 3, packs * pack}));
      check_op(device, l2_norm_check(dtype, {3, 2501}));
    }
  }
}

struct Result {
  std::vector<float> y, dx;
};
Result run(const Device& device, const Shape& shape, const std::vector<float>& x,
           const std::vector<float>& dy, float eps) {
  Tape tape(device);
  const Var v = tape.parameter(Buffer::from(device, shape, x));
  const Var y = l2_norm(v, eps);
  tape.backward(y, Buffer::from(device, shape, dy));
  tape.encoder().commit_and_wait();
  return {y.value().to_vector<float>(), v.grad().to_vector<float>()};
}

TEST(L2Norm, D1_D2_RowOfZeros) {
  for (const Device& device : testing::test_devices()) {
    // With eps 1e-30 q^3 would overflow.
    for (const float eps : {1e-6f, 1e-30f}) {
      const Result r = run(device, {1, 3}, {0, 0, 0}, {1, -2, 0}, eps);
      const float q = 1.0f / std::sqrt(eps);
      EXPECT_EQ(r.y, std::vector<float>(3, 0.0f));
      EXPECT_NEAR(r.dx[0] / q, 1.0f, 1e-6f);
      EXPECT_NEAR(r.dx[1] / q, -2.0f, 1e-6f);
      EXPECT_EQ(r.dx[2], 0.0f);
    }
  }
}

TEST(L2Norm, KnownRow) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {1, 2}, {3, 4}, {1, 0}, 1e-12f);
    EXPECT_NEAR(r.y[0], 0.6f, 1e-7f);
    EXPECT_NEAR(r.y[1], 0.8f, 1e-7f);
    EXPECT_NEAR(r.dx[0], 0.2f - 9.0f / 125.0f, 1e-7f);
    EXPECT_NEAR(r.dx[1], -12.0f / 125.0f, 1e-7f);
  }
}

TEST(L2Norm, NanStaysInItsRowAndOverflowGivesZero) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {3, 2}, {1, NAN, 1e30f, 1, 1, 2}, {1, 1, 1, 1, 1, 1}, 1e-6f);
    for (std::size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(std::isnan(r.y[i]), i < 2) << i;
      EXPECT_EQ(std::isnan(r.dx[i]), i < 2) << i;
    }
    EXPECT_EQ(r.y[2], 0.0f);
    EXPECT_EQ(r.dx[2], 0.0f);
  }
}

TEST(L2Norm, InPlace) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {40, 41}) {
      const Shape shape{70, cols};
      const testing::HostTensor hx = testing::random_tensor(DType::f32, shape, 1);
      const Buffer x = upload(device, hx), same = upload(device, hx);
      const Buffer dy = upload(device, testing::random_tensor(DType::f32, shape, 3));
      const Buffer y = device.alloc_uninitialized(DType::f32, shape),
                   dx = device.alloc_uninitialized(DType::f32, shape),
                   q = device.alloc_uninitialized(DType::f32, {70});
      CommandEncoder encoder(device);
      l2_norm_forward(encoder, x, 1e-3f, y, q);
      l2_norm_backward(encoder, x, q, dy, dx);
      l2_norm_backward(encoder, x, q, dy, dy);
      l2_norm_forward(encoder, same, 1e-3f, same, q);
      encoder.commit_and_wait();
      EXPECT_EQ(dx.to_vector<float>(), dy.to_vector<float>());
      EXPECT_EQ(y.to_vector<float>(), same.to_vector<float>());
    }
  }
}

TEST(L2Norm, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    const Result r = run(device, {0, 3}, {}, {}, 1e-6f);
    EXPECT_TRUE(r.y.empty() && r.dx.empty());
  }
}

TEST(L2Norm, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8}), q = device.alloc(DType::f32, {4});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(l2_norm_forward(encoder, Buffer(), 1.0f, x, q), code, "l2_norm: x is null");
  MIXTAPE_EXPECT_ERROR(l2_norm_forward(encoder, device.alloc(DType::f32, {4, 0}), 1.0f, x, q), code,
                       "a last dimension of 1 or more");
  MIXTAPE_EXPECT_ERROR(l2_norm_forward(encoder, x, 0.0f, x, q), code, "l2_norm: eps is 0");
  MIXTAPE_EXPECT_ERROR(l2_norm_forward(encoder, x, NAN, x, q), code, "l2_norm: eps is nan");
  MIXTAPE_EXPECT_ERROR(l2_norm_forward(encoder, x, 1.0f, x, x), code, "l2_norm: q is f32[4,8]");
  MIXTAPE_EXPECT_ERROR(l2_norm_backward(encoder, x, q, device.alloc(DType::bf16, {4, 8}), x), code,
                       "l2_norm_backward: dy is bf16[4,8], expected f32[4,8] like x");
}

}  // namespace
}  // namespace mixtape
