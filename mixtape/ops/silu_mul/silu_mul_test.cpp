#include "mixtape/ops/silu_mul/silu_mul.h"

#include <cmath>

#include "mixtape/ops/silu_mul/silu_mul_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(SiluMul, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, silu_mul_checks(device, dtype));
  }
}

TEST(SiluMul, OneGradientAlone) {
  for (const Device& device : testing::test_devices()) {
    for (const std::vector<bool>& wanted : {std::vector<bool>{true, false}, {false, true}}) {
      testing::OpCheck check = silu_mul_check(DType::f32, {3, 15});
      check.differentiable = wanted;
      check_op(device, check);
    }
  }
}

TEST(SiluMul, B2_GateAtInfinity) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::vector<float> gates = {-HUGE_VALF, -1e3f, -1e4f, HUGE_VALF, 0.0f};
    const Var gate = tape.parameter(Buffer::from(device, {5}, gates));
    const Var up = tape.parameter(Buffer::from(device, {5}, std::vector<float>(5, 2.0f)));
    const Var y = silu_mul(gate, up);
    tape.backward(y, Buffer::from(device, {5}, std::vector<float>(5, 3.0f)));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(y.value().to_vector<float>(), (std::vector<float>{0.0f, 0.0f, 0.0f, HUGE_VALF, 0.0f}));
    EXPECT_EQ(gate.grad().to_vector<float>(), (std::vector<float>{0.0f, 0.0f, 0.0f, 6.0f, 3.0f}));
    EXPECT_EQ(up.grad().to_vector<float>(), (std::vector<float>{0.0f, 0.0f, 0.0f, HUGE_VALF, 0.0f}));
  }
}

TEST(SiluMul, OneVarOnBothSides) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {1}, std::vector<float>{1.5f}));
    tape.backward(silu_mul(x, x));
    tape.encoder().commit_and_wait();
    const double s = 1.0 / (1.0 + std::exp(-1.5));
    EXPECT_NEAR(x.grad().to_vector<float>()[0], 1.5 * s * (1.0 + 1.5 * (1.0 - s)) + 1.5 * s, 1e-6);
  }
}

// Views that start in the middle of a pack give the same bytes.
TEST(SiluMul, UnalignedViews) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      const std::int64_t n = 5003;
      CommandEncoder encoder(device);
      const auto run = [&](std::int64_t skip) {
        const testing::HostTensor x = testing::random_tensor(dtype, {n}, 1);
        testing::HostTensor wide = x;
        wide.shape = {n + skip};
        wide.values.insert(wide.values.begin(), static_cast<std::size_t>(skip), 7.0);
        const Buffer gate = upload(device, wide).slice(skip, n + skip), up = upload(device, x);
        const Buffer y = device.alloc_uninitialized(dtype, {n + skip}).slice(skip, n + skip);
        const Buffer d = device.alloc_uninitialized(dtype, {2, n});
        silu_mul_forward(encoder, gate, up, y);
        silu_mul_backward(encoder, gate, up, y, {d.slice(0, 1).reshape({n}), Accumulate::no},
                          {d.slice(1, 2).reshape({n}), Accumulate::no});
        encoder.commit_and_wait();
        return std::pair{testing::download_bytes(y), testing::download_bytes(d)};
      };
      EXPECT_EQ(run(0), run(1)) << dtype;
    }
  }
}

TEST(SiluMul, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Buffer small = device.alloc(DType::f32, {4, 7});
  MIXTAPE_EXPECT_ERROR(silu_mul_forward(encoder, x, small, x), code,
                       "silu_mul: up is f32[4,7], expected f32[4,8]");
  MIXTAPE_EXPECT_ERROR(silu_mul_forward(encoder, x, x, Buffer()), code, "y is null");
  const Backward::Target out{x, Accumulate::no};
  MIXTAPE_EXPECT_ERROR(silu_mul_backward(encoder, x, x, x, out, out), code, "dup shares memory with dgate");
  MIXTAPE_EXPECT_ERROR(silu_mul_backward(encoder, x, x, small, out, {}), code, "dy is f32[4,7]");
}

}  // namespace
}  // namespace mixtape
