#include "mixtape/ops/l2_norm/l2_norm_check.h"

#include <cmath>

#include "mixtape/ops/l2_norm/l2_norm.h"
#include "mixtape/ops/l2_norm/l2_norm_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

// The contract's bounds: |x| and |dy| stay under 6, and q * sum |x*dy| under 6 sqrt(cols).
OpCheck l2_norm_check(DType dtype, const Shape& shape, float eps) {
  const std::int64_t cols = shape.cols();
  const auto d = static_cast<double>(cols);
  const auto e = static_cast<double>(eps);
  OpCheck check;
  check.name = str("l2_norm ", dtype, shape);
  check.inputs = {testing::random_tensor(dtype, shape, 1)};
  check.op = [eps](const std::vector<Var>& v) { return l2_norm(v[0], eps); };
  check.forward = [=](const auto& x) { return oracle::l2_norm(x[0], cols, e); };
  check.complex_forward = [=](const auto& x) { return oracle::l2_norm(x[0], cols, e); };
  check.backward = [=](const auto& x, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::l2_norm_backward(x[0], cols, e, dy)};
  };
  double largest_q = 0.0;
  for (std::size_t row = 0; row < check.inputs[0].values.size(); row += static_cast<std::size_t>(cols))
    largest_q = std::max(largest_q, oracle::l2_norm_factor(&check.inputs[0].values[row], cols, e));
  check.forward_bound = {1.0 + (dtype == DType::f32 ? 4.0 + d / 32 : 0.0), 0.0};
  check.backward_bound = {1.0, (8.0 + d / 16) * 0x1p-24 * largest_q * 6.0 * (1.0 + std::sqrt(d))};
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> l2_norm_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {l2_norm_check(dtype, {0, 5})};
  for (const std::int64_t cols : {1, 2, 7, 15, 16, 17, 33, 64, 65, 129})
    checks.push_back(l2_norm_check(dtype, {2, 2, cols}));
  return checks;
}

MIXTAPE_OP_CHECKS(l2_norm, testing::kValueDtypes, l2_norm_checks)

}  // namespace mixtape
