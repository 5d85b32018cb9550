#include "mixtape/ops/grouped_matmul/grouped_matmul_check.h"

#include <algorithm>

#include "mixtape/ops/grouped_matmul/grouped_matmul.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

OpCheck grouped_matmul_check(const Device& device, DType dtype, DType out,
                             const oracle::GroupedMatmulCase& c) {
  OpCheck check;
  const auto experts = static_cast<std::int64_t>(c.sizes.size());
  check.name = str("grouped_matmul ", dtype, "->", out, " ", c.rows(), " rows, ", experts, " experts");
  check.inputs = {testing::random_tensor(dtype, {c.rows(), c.k}, 1),
                  testing::random_tensor(dtype, {experts, c.n, c.k}, 2)};
  check.op = [out, offsets = upload_offsets(device, c.sizes)](const std::vector<Var>& v) {
    return grouped_matmul(v[0], v[1], offsets, out);
  };
  check.forward = [c](const auto& x) { return oracle::grouped_matmul(c, x[0], x[1]); };
  check.complex_forward = [c](const auto& x) { return oracle::grouped_matmul(c, x[0], x[1]); };
  check.backward = [c](const auto& x, const Doubles& dy) {
    return oracle::grouped_matmul_backward(c, x[0], x[1], dy);
  };
  // Products of standard normals are 0.64 in the mean: 4 covers the largest sums of magnitudes.
  const auto sums = [](double length) { return length * 0x1p-24 * 4.0 * length; };
  check.forward_bound = {1.0, sums(static_cast<double>(c.k))};
  check.backward_bound = {1.0, sums(static_cast<double>(std::max(c.rows(), c.n)))};
  check.prove_oracle = c.rows() * c.n * c.k < 2000;
  return check;
}

std::vector<OpCheck> grouped_matmul_checks(const Device& device, DType dtype) {
  std::vector<OpCheck> checks = {grouped_matmul_check(device, dtype, dtype, {5, 3, {0, 0}})};
  checks.push_back(grouped_matmul_check(device, dtype, dtype, {5, 3, {2, 4, 1}}));
  checks.push_back(grouped_matmul_check(device, dtype, dtype, {7, 10, {0, 5, 0, 0, 6, 0}}));
  checks.push_back(grouped_matmul_check(device, dtype, dtype, {33, 40, {9}}));
  if (dtype != DType::f32) checks.push_back(grouped_matmul_check(device, dtype, DType::f32, {9, 12, {3, 7}}));
  return checks;
}

MIXTAPE_OP_CHECKS(grouped_matmul, testing::kValueDtypes, grouped_matmul_checks)

}  // namespace mixtape
