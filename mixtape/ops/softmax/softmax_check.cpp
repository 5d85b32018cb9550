#include "mixtape/ops/softmax/softmax_check.h"

#include <algorithm>

#include "mixtape/ops/softmax/softmax.h"
#include "mixtape/ops/softmax/softmax_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck softmax_check(DType dtype, std::int64_t rows, std::int64_t cols, double scale) {
  OpCheck check;
  check.name = str("softmax ", dtype, " ", rows, "x", cols);
  check.inputs = {testing::random_tensor(dtype, {rows, cols}, 1, scale)};
  check.op = [](const std::vector<Var>& v) { return softmax(v[0]); };
  check.forward = [cols](const auto& x) { return oracle::softmax(x[0], cols); };
  check.complex_forward = [cols](const auto& x) { return oracle::softmax(x[0], cols); };
  check.backward = [cols](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::softmax_backward(oracle::softmax(x[0], cols), dy, cols)};
  };
  const Doubles &x = check.inputs[0].values, y = oracle::softmax(x, cols);
  if (x.empty()) return check;
  const double range = *std::max_element(x.begin(), x.end()) - *std::min_element(x.begin(), x.end());
  check.forward_bound = testing::rounded_once(dtype, {4.0 + range, 0x1p-126});
  // The gradient is made of the rounded y; |dy| < 4.
  const double y_error = check.forward_bound.units * epsilon(dtype);
  const double largest = *std::max_element(y.begin(), y.end());
  check.backward_bound = {2.0 + check.forward_bound.units,
                          (y_error + (8.0 + static_cast<double>(cols) / 16) * 0x1p-24) * 4.0 * largest};
  check.prove_oracle = rows * cols <= 600;
  return check;
}

std::vector<OpCheck> softmax_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {softmax_check(dtype, 0, 5)};
  for (const std::int64_t cols : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 127, 128, 129})
    checks.push_back(softmax_check(dtype, 4, cols));
  return checks;
}

MIXTAPE_OP_CHECKS(softmax, testing::kValueDtypes, softmax_checks)

}  // namespace mixtape
