#include "mixtape/ops/rms_norm/rms_norm_check.h"

#include <cmath>

#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/ops/rms_norm/rms_norm_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

// At most the contract's bounds: |x|, |w|, |dy| stay under 6, rstd is about 1, and a sum of mixed signs grows
// with the root of its length.
OpCheck rms_norm_check(DType dtype, DType weight_dtype, const Shape& shape) {
  constexpr float kEps = 1e-3f;
  const std::int64_t cols = shape.cols();
  const auto d = static_cast<double>(cols), rows = static_cast<double>(shape.rows());
  OpCheck check;
  check.name = str("rms_norm ", dtype, shape, " w ", weight_dtype);
  check.inputs = {testing::random_tensor(dtype, shape, 1), testing::random_tensor(weight_dtype, {cols}, 2)};
  check.op = [](const std::vector<Var>& v) { return rms_norm(v[0], v[1], kEps); };
  check.forward = [](const auto& x) { return oracle::rms_norm(x[0], x[1], static_cast<double>(kEps)); };
  check.complex_forward = [](const auto& x) {
    return oracle::rms_norm(x[0], x[1], static_cast<double>(kEps));
  };
  check.backward = [](const auto& x, const Doubles& dy) {
    return oracle::rms_norm_backward(x[0], x[1], static_cast<double>(kEps), dy);
  };
  check.forward_bound = {1.0 + (dtype == DType::f32 ? 4.0 + d / 32 : 0.0), 0.0};
  const double growth = std::max(8.0 + d / 16, 4.0 + rows / 64 + std::max(rows / 64, 32.0));
  check.backward_bound = {1.0, growth * 0x1p-24 * 30.0 * std::max(1.0, std::sqrt(rows))};
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> rms_norm_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {rms_norm_check(dtype, dtype, {2, 0, 5})};
  for (const std::int64_t cols : {1, 2, 7, 15, 16, 17, 31, 33, 64, 65, 127, 129}) {
    checks.push_back(rms_norm_check(dtype, dtype, {2, 2, cols}));
    if (dtype != DType::f32) checks.push_back(rms_norm_check(dtype, DType::f32, {4, cols}));
  }
  return checks;
}

MIXTAPE_OP_CHECKS(rms_norm, testing::kValueDtypes, rms_norm_checks)

}  // namespace mixtape
