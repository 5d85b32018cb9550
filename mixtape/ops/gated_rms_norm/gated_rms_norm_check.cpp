#include "mixtape/ops/gated_rms_norm/gated_rms_norm_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/gated_rms_norm/gated_rms_norm.h"
#include "mixtape/ops/gated_rms_norm/gated_rms_norm_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

constexpr float kEps = 1e-3f;

// At most the contract's bounds: |x|, |z|, |w|, |dy| stay under 5, rstd under 2 where a row has more than a
// few columns, and a sum of mixed signs grows with the root of its length.
OpCheck gated_rms_norm_check(DType dtype, DType weight_dtype, const Shape& shape) {
  const std::int64_t cols = shape.cols();
  const auto d = static_cast<double>(cols), rows = static_cast<double>(shape.rows());
  constexpr auto kE = double{kEps};
  OpCheck check;
  check.name = str("gated_rms_norm ", dtype, shape, " w ", weight_dtype);
  check.inputs = {testing::random_tensor(dtype, shape, 1), testing::random_tensor(dtype, shape, 3),
                  testing::random_tensor(weight_dtype, {cols}, 2)};
  check.op = [](const std::vector<Var>& v) { return gated_rms_norm(v[0], v[1], v[2], kEps); };
  check.forward = [](const auto& v) { return oracle::gated_rms_norm(v[0], v[1], v[2], kE); };
  check.complex_forward = [](const auto& v) { return oracle::gated_rms_norm(v[0], v[1], v[2], kE); };
  check.backward = [](const auto& v, const Doubles& dy) {
    return oracle::gated_rms_norm_backward(v[0], v[1], v[2], kE, dy);
  };
  check.forward_bound = {1.0 + (dtype == DType::f32 ? 12.0 + d / 32 : 0.0), 0.0};
  const double growth = std::max(16.0 + d / 16, 12.0 + rows / 64 + std::max(rows / 64, 32.0));
  check.backward_bound = {1.0, growth * 0x1p-24 * 40.0 * std::max(1.0, std::sqrt(rows))};
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> gated_rms_norm_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {gated_rms_norm_check(dtype, dtype, {0, 5})};
  for (const std::int64_t cols : {1, 2, 7, 16, 17, 33, 64, 129})
    checks.push_back(gated_rms_norm_check(dtype, dtype, {2, 2, cols}));
  if (dtype == DType::f32) return checks;
  for (const std::int64_t cols : {5, 64})
    checks.push_back(gated_rms_norm_check(dtype, DType::f32, {4, cols}));
  return checks;
}

MIXTAPE_OP_CHECKS(gated_rms_norm, testing::kValueDtypes, gated_rms_norm_checks)

}  // namespace mixtape
