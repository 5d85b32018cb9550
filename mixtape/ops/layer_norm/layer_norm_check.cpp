#include "mixtape/ops/layer_norm/layer_norm_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/layer_norm/layer_norm.h"
#include "mixtape/ops/layer_norm/layer_norm_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

// At most the contract's bounds: |x|, |w|, |b|, |dy| stay under 5 and so do |h| and m rstd; a sum of mixed signs
// grows with the root of its length. rstd is the largest of a row.
OpCheck layer_norm_check(DType dtype, const Shape& shape, int parameters) {
  constexpr float kEps = 1e-2f;
  constexpr auto kEpsilon = static_cast<double>(kEps);
  const auto cols = static_cast<std::size_t>(shape.cols());
  OpCheck check;
  check.name = str("layer_norm ", dtype, shape, " with ", parameters, " parameters");
  check.inputs = {testing::random_tensor(dtype, shape, 1)};
  for (int i = 0; i < parameters; ++i)
    check.inputs.push_back(testing::random_tensor(dtype, {shape.cols()}, static_cast<std::uint64_t>(2 + i)));
  check.op = [](const std::vector<Var>& v) {
    return v.size() == 1   ? layer_norm(v[0], kEps)
           : v.size() == 2 ? layer_norm(v[0], v[1], kEps)
                           : layer_norm(v[0], v[1], v[2], kEps);
  };
  const auto forward = [=](auto v) {
    v.resize(3);
    return oracle::layer_norm(v[0], v[1], v[2], cols, kEpsilon);
  };
  check.forward = [=](const auto& v) { return forward(v); };
  check.complex_forward = [=](const auto& v) { return forward(v); };
  check.backward = [=](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    const Doubles w = v.size() > 1 ? v[1] : Doubles();
    const oracle::LayerNormGradients d = oracle::layer_norm_backward(v[0], w, cols, kEpsilon, dy);
    std::vector<Doubles> gradients = {d.dx, d.dw, d.db};
    gradients.resize(v.size());
    return gradients;
  };
  double rstd = 0.0;
  for (std::size_t row = 0; row < check.inputs[0].values.size(); row += cols)
    rstd = std::max(rstd, oracle::LayerNormRow<double>(&check.inputs[0].values[row], cols, kEpsilon).rstd);
  const double n = static_cast<double>(cols), rows = static_cast<double>(shape.rows()),
               far = 5.0 * (1.0 + rstd);
  check.forward_bound = {1.0, ((8.0 + n / 16.0) * 5.0 * far + 5.0) * 0x1p-24};
  const double dx_error = (16.0 + n / 8.0) * rstd * 25.0 * (1.0 + far);
  const double dw_error = (8.0 + rows / 16.0) * std::sqrt(rows) * 5.0 * far;
  check.backward_bound = {1.0, std::max(dx_error, dw_error) * 0x1p-24};
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

std::vector<OpCheck> layer_norm_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {layer_norm_check(dtype, {0, 5}, 2)};
  for (const std::int64_t cols : {1, 2, 7, 16, 33, 65, 130})
    checks.push_back(layer_norm_check(dtype, {2, 2, cols}, 2));
  for (const int parameters : {0, 1}) checks.push_back(layer_norm_check(dtype, {3, 17}, parameters));
  return checks;
}

MIXTAPE_OP_CHECKS(layer_norm, testing::kValueDtypes, layer_norm_checks)

}  // namespace mixtape
