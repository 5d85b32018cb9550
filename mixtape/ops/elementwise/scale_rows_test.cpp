#include "mixtape/ops/elementwise/scale_rows.h"

#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;

template <class T>
std::vector<T> oracle_scale_rows(const std::vector<T>& x, const std::vector<T>& s) {
  const std::size_t cols = x.size() / s.size();
  std::vector<T> y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] *= s[i / cols];
  return y;
}

testing::OpCheck scale_rows_check(DType dtype, const Shape& rows, std::int64_t cols) {
  std::vector<std::int64_t> dims = rows.dims();
  dims.push_back(cols);
  testing::OpCheck check;
  check.name = str("scale_rows ", dtype, rows, " ", cols);
  check.inputs = {testing::random_tensor(dtype, Shape(dims), 6), testing::random_tensor(dtype, rows, 7)};
  check.op = [](const std::vector<Var>& v) { return scale_rows(v[0], v[1]); };
  check.forward = [](const auto& v) { return oracle_scale_rows(v[0], v[1]); };
  check.complex_forward = [](const auto& v) { return oracle_scale_rows(v[0], v[1]); };
  check.backward = [cols](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    Doubles ds(v[1].size(), 0.0);
    for (std::size_t i = 0; i < dy.size(); ++i) ds[i / static_cast<std::size_t>(cols)] += dy[i] * v[0][i];
    return {oracle_scale_rows(dy, v[1]), ds};
  };
  check.forward_bound = {0.51, 0.0};
  const double terms = 16.0 * static_cast<double>(cols);  // |x|, |dy| < 4
  check.backward_bound = {0.51, (4.0 + static_cast<double>(cols) / 32.0) * 0x1p-24 * terms};
  check.prove_oracle = rows.numel() * cols <= 600;
  return check;
}

TEST(ScaleRows, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      for (const std::int64_t cols : {1, 5, 16, 33, 64, 67})
        check_op(device, scale_rows_check(dtype, {2, 3}, cols));
      check_op(device, scale_rows_check(dtype, {9}, 5000));
    }
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
