#include "mixtape/ops/clamped_swiglu/clamped_swiglu.h"

#include <cmath>

#include "mixtape/ops/clamped_swiglu/clamped_swiglu_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr ClampedSwigluOptions kUsual{.alpha = 1.702f, .limit = 7.0f};

TEST(ClampedSwiglu, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, clamped_swiglu_checks(device, dtype));
  }
}

TEST(ClampedSwiglu, OneGradientAlone) {
  for (const Device& device : testing::test_devices()) {
    for (const std::vector<bool>& wanted : {std::vector<bool>{true, false}, {false, true}}) {
      testing::OpCheck check = clamped_swiglu_check(DType::f32, {3, 15}, kUsual);
      check.differentiable = wanted;
      check_op(device, check);
    }
  }
}

// What is past the limit counts as the limit and gets no gradient; at the limit it does.
TEST(ClampedSwiglu, B2_ValuesAtAndPastTheLimits) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const std::vector<float> gates = {-HUGE_VALF, -1e4f, 7.0f, 8.0f, HUGE_VALF, 0.0f, 0.0f};
    const std::vector<float> ups = {2.0f, 2.0f, -7.0f, -8.0f, -HUGE_VALF, 7.0f, HUGE_VALF};
    const Var gate = tape.parameter(Buffer::from(device, {7}, gates));
    const Var up = tape.parameter(Buffer::from(device, {7}, ups));
    const Var y = clamped_swiglu(gate, up, kUsual);
    tape.backward(y, Buffer::from(device, {7}, std::vector<float>(7, 2.0f)));
    tape.encoder().commit_and_wait();
    const double s = 1.0 / (1.0 + std::exp(-1.702 * 7.0)), slope = s * (1.0 + 1.702 * 7.0 * (1.0 - s));
    const std::vector<double> wanted = {0, 0, -42 * s, -42 * s, -42 * s, 0, 0},
                              dgate = {0, 0, -12 * slope, 0, 0, 8, 8}, dup = {0, 0, 14 * s, 0, 0, 0, 0};
    testing::expect_close("y", y.value(), wanted, {6.0, 0.0});
    testing::expect_close("dgate", gate.grad(), dgate, {6.0, 0.0});
    testing::expect_close("dup", up.grad(), dup, {6.0, 0.0});
  }
}

TEST(ClampedSwiglu, A4_NanGoesThrough) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var gate = tape.constant(Buffer::from(device, {3}, std::vector<float>{NAN, 1.0f, 8.0f}));
    const Var up = tape.constant(Buffer::from(device, {3}, std::vector<float>{1.0f, NAN, NAN}));
    const Var y = clamped_swiglu(gate, up, kUsual);
    tape.encoder().commit_and_wait();
    for (const float v : y.value().to_vector<float>()) EXPECT_TRUE(std::isnan(v)) << device.name();
  }
}

TEST(ClampedSwiglu, OneVarOnBothSides) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(Buffer::from(device, {1}, std::vector<float>{1.5f}));
    tape.backward(clamped_swiglu(x, x, {}));
    tape.encoder().commit_and_wait();
    const double s = 1.0 / (1.0 + std::exp(-1.5));
    EXPECT_NEAR(x.grad().to_vector<float>()[0], 2.5 * s * (1.0 + 1.5 * (1.0 - s)) + 1.5 * s, 1e-6);
  }
}

// Views that start in the middle of a pack give the same bytes.
TEST(ClampedSwiglu, UnalignedViews) {
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
        clamped_swiglu_forward(encoder, gate, up, kUsual, y);
        clamped_swiglu_backward(encoder, gate, up, kUsual, y, {d.slice(0, 1).reshape({n}), Accumulate::no},
                                {d.slice(1, 2).reshape({n}), Accumulate::no});
        encoder.commit_and_wait();
        return std::pair{testing::download_bytes(y), testing::download_bytes(d)};
      };
      EXPECT_EQ(run(0), run(1)) << dtype;
    }
  }
}

TEST(ClampedSwiglu, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Buffer small = device.alloc(DType::f32, {4, 7});
  MIXTAPE_EXPECT_ERROR(clamped_swiglu_forward(encoder, x, small, {}, x), code,
                       "clamped_swiglu: up is f32[4,7], expected f32[4,8]");
  MIXTAPE_EXPECT_ERROR(clamped_swiglu_forward(encoder, x, x, {}, Buffer()), code, "y is null");
  MIXTAPE_EXPECT_ERROR(clamped_swiglu_forward(encoder, x, x, {.alpha = 0.0f}, x), code, "alpha is 0");
  MIXTAPE_EXPECT_ERROR(clamped_swiglu_forward(encoder, x, x, {.limit = NAN}, x), code, "limit is nan");
  const Backward::Target out{x, Accumulate::no};
  MIXTAPE_EXPECT_ERROR(clamped_swiglu_backward(encoder, x, x, {}, x, out, out), code,
                       "dup shares memory with dgate");
  MIXTAPE_EXPECT_ERROR(clamped_swiglu_backward(encoder, x, x, {}, small, out, {}), code, "dy is f32[4,7]");
}

}  // namespace
}  // namespace mixtape
