#include "mixtape/ops/take_along_axis/take_along_axis_check.h"

#include "mixtape/ops/take_along_axis/take_along_axis.h"
#include "mixtape/ops/take_along_axis/take_along_axis_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck take_along_axis_check(DType dtype, DType index, std::int64_t rows, std::int64_t cols,
                              std::int64_t k) {
  OpCheck check;
  check.name = str("take_along_axis ", dtype, " ", index, " ", rows, "x", cols, " k ", k);
  check.inputs = {testing::random_tensor(dtype, {rows, cols}, 1),
                  testing::random_indices({rows, k}, 2, cols, index)};
  check.op = [](const std::vector<Var>& v) { return take_along_axis(v[0], v[1]); };
  check.forward = [=](const auto& v) { return oracle::take_along_axis(v[0], v[1], cols, k); };
  check.complex_forward = [=, ids = check.inputs[1].values](const auto& v) {
    return oracle::take_along_axis(v[0], ids, cols, k);
  };
  check.backward = [=](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::take_along_axis_backward(v[1], dy, cols, k, v[0].size()), {}};
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.51, static_cast<double>(k) * 0x1p-24 * 4.0};  // up to k terms below 4
  check.prove_oracle = rows * cols <= 600;
  return check;
}

std::vector<OpCheck> take_along_axis_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const DType index : {DType::u32, DType::i32}) {
    checks.push_back(take_along_axis_check(dtype, index, 0, 5, 2));
    checks.push_back(take_along_axis_check(dtype, index, 2, 5, 0));
    checks.push_back(take_along_axis_check(dtype, index, 1, 1, 1));
    checks.push_back(take_along_axis_check(dtype, index, 5, 7, 3));
    checks.push_back(take_along_axis_check(dtype, index, 3, 33, 33));
    checks.push_back(take_along_axis_check(dtype, index, 20, 5000, 8));
  }
  return checks;
}

MIXTAPE_OP_CHECKS(take_along_axis, testing::kValueDtypes, take_along_axis_checks)

}  // namespace mixtape
