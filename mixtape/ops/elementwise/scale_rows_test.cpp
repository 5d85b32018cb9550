#include "mixtape/ops/elementwise/scale_rows.h"

#include "mixtape/ops/elementwise/scale_rows_check.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(ScaleRows, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, scale_rows_checks(device, dtype));
  }
}

TEST(ScaleRows, EmptyBatchGivesZeroGradients) {
  for (const Device& device : testing::test_devices()) {
    Tape tape(device);
    const Var x = tape.parameter(device.alloc(DType::f32, {3, 0}));
    const Var s = tape.parameter(device.alloc(DType::f32, {3}));
    const testing::Poison poison(device);
    tape.backward(scale_rows(x, s), device.alloc(DType::f32, {3, 0}));
    tape.encoder().commit_and_wait();
    EXPECT_EQ(s.grad().to_vector<float>(), std::vector<float>(3, 0.0f));
  }
}

TEST(ScaleRows, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto code = ErrorCode::invalid_argument;
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const Buffer s = device.alloc(DType::f32, {4});
  MIXTAPE_EXPECT_ERROR(scale_rows_forward(encoder, x, device.alloc(DType::f32, {8}), x), code,
                       "scale_rows: s is f32[8], expected f32[4]");
  MIXTAPE_EXPECT_ERROR(scale_rows_forward(encoder, s, s, s), code, "expected rank 2 or more");
  MIXTAPE_EXPECT_ERROR(scale_rows_backward_s(encoder, x, s, s), code,
                       "dy is f32[4], expected f32[4,8] like x");
  MIXTAPE_EXPECT_ERROR(scale_rows_backward_x(encoder, Buffer(), x, x), code, "s is null");
}

}  // namespace
}  // namespace mixtape
