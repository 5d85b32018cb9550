#include "mixtape/ops/moe_route/grouped_swiglu_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/grouped_matmul/grouped_matmul_check.h"
#include "mixtape/ops/moe_route/grouped_swiglu.h"
#include "mixtape/ops/silu_mul/silu_mul_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

namespace {

template <class T>
std::vector<T> swiglu(const oracle::GroupedMatmulCase& c, const std::vector<std::vector<T>>& v) {
  return oracle::silu_mul(oracle::grouped_matmul(c, v[0], v[1]), oracle::grouped_matmul(c, v[0], v[2]));
}

std::vector<Doubles> swiglu_backward(const oracle::GroupedMatmulCase& c, const std::vector<Doubles>& v,
                                     const Doubles& dy) {
  const std::vector<Doubles> inner = oracle::silu_mul_backward(oracle::grouped_matmul(c, v[0], v[1]),
                                                               oracle::grouped_matmul(c, v[0], v[2]), dy);
  std::vector<Doubles> of_gate = oracle::grouped_matmul_backward(c, v[0], v[1], inner[0]);
  const std::vector<Doubles> of_up = oracle::grouped_matmul_backward(c, v[0], v[2], inner[1]);
  for (std::size_t i = 0; i < of_gate[0].size(); ++i) of_gate[0][i] += of_up[0][i];
  return {of_gate[0], of_gate[1], of_up[1]};
}

OpCheck grouped_swiglu_check(const Device& device, DType dtype, const oracle::GroupedMatmulCase& c) {
  OpCheck check;
  const auto experts = static_cast<std::int64_t>(c.sizes.size());
  check.name = str("grouped_swiglu ", dtype, " ", c.rows(), " rows, ", experts, " experts");
  const double spread = 1.0 / std::sqrt(static_cast<double>(c.k));  // products are standard normal
  check.inputs = {testing::random_tensor(dtype, {c.rows(), c.k}, 1),
                  testing::random_tensor(dtype, {experts, c.n, c.k}, 2, spread),
                  testing::random_tensor(dtype, {experts, c.n, c.k}, 3, spread)};
  check.op = [offsets = upload_offsets(device, c.sizes)](const std::vector<Var>& v) {
    return grouped_swiglu(v[0], v[1], v[2], offsets);
  };
  check.forward = [c](const auto& v) { return swiglu(c, v); };
  check.complex_forward = [c](const auto& v) { return swiglu(c, v); };
  check.backward = [c](const auto& v, const Doubles& dy) { return swiglu_backward(c, v, dy); };
  // Products are below 5 and off by a rounding to the dtype, and so are their gradients; sums of these are as long as rows
  // or columns, and their errors have either sign.
  const double rounding = 0x1p-24 * static_cast<double>(c.k) + (dtype == DType::f32 ? 0.0 : epsilon(dtype));
  const double length = std::sqrt(static_cast<double>(std::max(c.rows(), c.n)));
  check.forward_bound = {4.0, 10.0 * rounding};
  check.backward_bound = {2.0, 10.0 * length * rounding};
  check.prove_oracle = c.rows() * c.n * c.k < 2000;
  return check;
}

}  // namespace

std::vector<OpCheck> grouped_swiglu_checks(const Device& device, DType dtype) {
  return {grouped_swiglu_check(device, dtype, {5, 3, {0, 0}}),
          grouped_swiglu_check(device, dtype, {5, 3, {2, 4, 1}}),
          grouped_swiglu_check(device, dtype, {7, 10, {0, 5, 0, 6}}),
          grouped_swiglu_check(device, dtype, {24, 16, {9, 3}})};
}

MIXTAPE_OP_CHECKS(grouped_swiglu, testing::kValueDtypes, grouped_swiglu_checks)

}  // namespace mixtape
