#include "mixtape/ops/silu_mul/silu_mul_check.h"

#include "mixtape/ops/silu_mul/silu_mul.h"
#include "mixtape/ops/silu_mul/silu_mul_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck silu_mul_check(DType dtype, const Shape& shape) {
  OpCheck check;
  check.name = str("silu_mul ", dtype, shape);
  check.inputs = {testing::random_tensor(dtype, shape, 1, 2.0), testing::random_tensor(dtype, shape, 2)};
  check.op = [](const std::vector<Var>& v) { return silu_mul(v[0], v[1]); };
  check.forward = [](const auto& v) { return oracle::silu_mul(v[0], v[1]); };
  check.complex_forward = [](const auto& v) { return oracle::silu_mul(v[0], v[1]); };
  check.backward = [](const auto& v, const Doubles& dy) { return oracle::silu_mul_backward(v[0], v[1], dy); };
  check.forward_bound = testing::rounded_once(dtype, {4.0, 0.0});
  check.backward_bound = {5.0, 0x1p-21 * 16.0};  // |dy|, |up| < 4
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> silu_mul_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const Shape& shape : {Shape{0, 4}, Shape{1}, Shape{3, 15}, Shape{2, 3, 33}, Shape{40000}})
    checks.push_back(silu_mul_check(dtype, shape));
  return checks;
}

MIXTAPE_OP_CHECKS(silu_mul, testing::kValueDtypes, silu_mul_checks)

}  // namespace mixtape
