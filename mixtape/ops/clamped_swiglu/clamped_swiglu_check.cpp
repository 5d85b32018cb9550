#include "mixtape/ops/clamped_swiglu/clamped_swiglu_check.h"

#include "mixtape/ops/clamped_swiglu/clamped_swiglu_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck clamped_swiglu_check(DType dtype, const Shape& shape, const ClampedSwigluOptions& o) {
  OpCheck check;
  check.name = str("clamped_swiglu ", dtype, shape, " alpha ", o.alpha, " limit ", o.limit);
  // Some of both are beyond the limit.
  const double limit = o.limit;
  check.inputs = {testing::random_tensor(dtype, shape, 1, 0.6 * limit),
                  testing::random_tensor(dtype, shape, 2, 0.6 * limit)};
  check.op = [o](const std::vector<Var>& v) { return clamped_swiglu(v[0], v[1], o); };
  const auto forward = [o](const auto& v) { return oracle::clamped_swiglu(v[0], v[1], o.alpha, o.limit); };
  check.forward = forward;
  check.complex_forward = forward;
  check.backward = [o](const auto& v, const Doubles& dy) {
    return oracle::clamped_swiglu_backward(v[0], v[1], dy, o.alpha, o.limit);
  };
  const double v = 0x1p-24 / o.alpha;
  check.forward_bound = testing::rounded_once(dtype, {6.0, v * (limit + 1.0)});
  check.backward_bound = {6.0, 4.0 * std::max(v, 0x1p-21 * (limit + 1.0))};  // |dy| < 4
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> clamped_swiglu_checks(const Device&, DType dtype) {
  constexpr ClampedSwigluOptions kUsual{.alpha = 1.702f, .limit = 7.0f};
  std::vector<OpCheck> checks;
  for (const Shape& shape : {Shape{0, 4}, Shape{1}, Shape{3, 15}, Shape{2, 3, 33}, Shape{40000}})
    checks.push_back(clamped_swiglu_check(dtype, shape, kUsual));
  checks.push_back(clamped_swiglu_check(dtype, {5, 13}, {.alpha = 0.7f, .limit = 1.3f}));
  return checks;
}

MIXTAPE_OP_CHECKS(clamped_swiglu, testing::kValueDtypes, clamped_swiglu_checks)

}  // namespace mixtape
