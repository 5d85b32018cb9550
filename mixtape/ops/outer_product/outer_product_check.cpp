#include "mixtape/ops/outer_product/outer_product_check.h"

#include <algorithm>
#include <cmath>

#include "mixtape/ops/outer_product/outer_product.h"
#include "mixtape/ops/outer_product/outer_product_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

// Sums of products of two normal numbers: their mean magnitude is 2/pi.
OpCheck outer_product_check(DType dtype, std::int64_t batch, std::int64_t n, std::int64_t m) {
  OpCheck check;
  check.name = str("outer_product ", dtype, " ", batch, "x", n, "x", m);
  check.inputs = {testing::random_tensor(dtype, {batch, n}, 1), testing::random_tensor(dtype, {batch, m}, 2)};
  check.op = [](const std::vector<Var>& v) { return outer_product(v[0], v[1]); };
  check.forward = [=](const auto& v) { return oracle::outer_product(v[0], v[1], n, m); };
  check.complex_forward = [=](const auto& v) { return oracle::outer_product(v[0], v[1], n, m); };
  check.backward = [=](const auto& v, const Doubles& dy) {
    return oracle::outer_product_backward(v[0], v[1], n, m, dy);
  };
  check.forward_bound = {0.5, 0.0};
  const auto rows = static_cast<double>(n), cols = static_cast<double>(m);
  const double of_a = (4.0 + cols / 32) * (cols + 4.0 * std::sqrt(cols));
  const double block = std::min(rows, static_cast<double>(kOuterRows));
  const double of_b = (4.0 + block + rows / kOuterRows) * (rows + 4.0 * std::sqrt(rows));
  check.backward_bound = {1.0, 0x1p-24 * std::max(of_a, of_b)};
  check.prove_oracle = batch * n * m <= 600;
  return check;
}

std::vector<OpCheck> outer_product_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const std::int64_t m : {1, 3, 8, 16, 17, 40})
    checks.push_back(outer_product_check(dtype, m == 3 ? 1 : 3, 5, m));
  return checks;
}

MIXTAPE_OP_CHECKS(outer_product, testing::kValueDtypes, outer_product_checks)

}  // namespace mixtape
