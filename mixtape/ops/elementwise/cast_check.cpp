#include "mixtape/ops/elementwise/cast_check.h"

#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck cast_check(DType from, DType to) {
  OpCheck check;
  check.name = str("cast ", from, " ", to);
  check.inputs = {testing::random_tensor(from, {3, 37}, 4)};
  check.op = [to](const std::vector<Var>& v) { return cast(v[0], to); };
  check.forward = [](const auto& v) { return v[0]; };
  check.complex_forward = [](const auto& v) { return v[0]; };
  check.backward = [](const auto&, const Doubles& dy) -> std::vector<Doubles> { return {dy}; };
  check.forward_bound = {to == DType::f32 ? 0.0 : 0.5, 0.0};
  check.backward_bound = {from == DType::f32 ? 0.0 : 0.5, 0.0};
  return check;
}

std::vector<OpCheck> cast_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const DType to : testing::kValueDtypes) {
    if (to != dtype) checks.push_back(cast_check(dtype, to));
  }
  checks.push_back(testing::empty_batch_check(
      "cast", {testing::random_tensor(dtype, {0, 5}, 1)}, [dtype](const std::vector<Var>& v) {
        return cast(v[0], dtype == DType::f32 ? DType::bf16 : DType::f32);
      }));
  return checks;
}

MIXTAPE_OP_CHECKS(cast, testing::kValueDtypes, cast_checks)

}  // namespace mixtape
