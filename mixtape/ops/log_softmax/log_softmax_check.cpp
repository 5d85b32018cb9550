#include "mixtape/ops/log_softmax/log_softmax_check.h"

#include "mixtape/ops/log_softmax/log_softmax.h"
#include "mixtape/ops/log_softmax/log_softmax_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck log_softmax_check(DType dtype, std::int64_t rows, std::int64_t cols, double scale) {
  OpCheck check;
  check.name = str("log_softmax ", dtype, " ", rows, "x", cols);
  check.inputs = {testing::random_tensor(dtype, {rows, cols}, 1, scale)};
  check.op = [](const std::vector<Var>& v) { return log_softmax(v[0]); };
  check.forward = [cols](const auto& x) { return oracle::log_softmax(x[0], cols); };
  check.complex_forward = [cols](const auto& x) { return oracle::log_softmax(x[0], cols); };
  check.backward = [cols](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::log_softmax_backward(x[0], dy, cols)};
  };
  // |x - max| is at most 12 standard deviations; p sum |dy| stays below 8, since p falls as 1/cols.
  const double error = (8.0 + 12.0 * scale + static_cast<double>(cols) / 16.0) * 0x1p-23;
  check.forward_bound = {1.0, error};
  check.backward_bound = {1.0, 8.0 * error};
  check.prove_oracle = rows * cols <= 600;
  return check;
}

std::vector<OpCheck> log_softmax_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {log_softmax_check(dtype, 0, 5)};
  for (const std::int64_t cols : {1, 2, 7, 16, 17, 33, 129})
    checks.push_back(log_softmax_check(dtype, 4, cols));
  checks.push_back(log_softmax_check(dtype, 3, 4096));
  return checks;
}

MIXTAPE_OP_CHECKS(log_softmax, testing::kValueDtypes, log_softmax_checks)

}  // namespace mixtape
