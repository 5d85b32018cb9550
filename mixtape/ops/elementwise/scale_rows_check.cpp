#include "mixtape/ops/elementwise/scale_rows_check.h"

#include "mixtape/ops/elementwise/scale_rows.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

namespace {

template <class T>
std::vector<T> oracle_scale_rows(const std::vector<T>& x, const std::vector<T>& s) {
  const std::size_t cols = x.size() / s.size();
  std::vector<T> y = x;
  for (std::size_t i = 0; i < x.size(); ++i) y[i] *= s[i / cols];
  return y;
}

}  // namespace

OpCheck scale_rows_check(DType dtype, const Shape& rows, std::int64_t cols) {
  std::vector<std::int64_t> dims = rows.dims();
  dims.push_back(cols);
  OpCheck check;
  check.name = str("scale_rows ", dtype, rows, " ", cols);
  check.inputs = {testing::random_tensor(dtype, Shape(dims), 6), testing::random_tensor(dtype, rows, 7)};
  check.op = [](const std::vector<Var>& v) { return scale_rows(v[0], v[1]); };
  check.forward = [](const auto& v) { return oracle_scale_rows(v[0], v[1]); };
  check.complex_forward = [](const auto& v) { return oracle_scale_rows(v[0], v[1]); };
  check.backward = [cols](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    Doubles ds(v[1].size(), 0.0);
    for (std::size_t i = 0; i < dy.size(); ++i) ds[i / static_cast<std::size_t>(cols)] += dy[i] * v[0][i];
    return {oracle_scale_rows(dy, v[1]), ds};
  };
  check.forward_bound = {0.51, 0.0};
  const double terms = 16.0 * static_cast<double>(cols);  // |x|, |dy| < 4
  check.backward_bound = {0.51, (4.0 + static_cast<double>(cols) / 32.0) * 0x1p-24 * terms};
  check.prove_oracle = rows.numel() * cols <= 600;
  return check;
}

std::vector<OpCheck> scale_rows_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const std::int64_t cols : {1, 5, 16, 33, 64, 67})
    checks.push_back(scale_rows_check(dtype, {2, 3}, cols));
  checks.push_back(scale_rows_check(dtype, {9}, 5000));
  checks.push_back(testing::empty_batch_check(
      "scale_rows", {testing::random_tensor(dtype, {0, 5}, 1), testing::random_tensor(dtype, {0}, 2)},
      checks[0].op));
  return checks;
}

MIXTAPE_OP_CHECKS(scale_rows, testing::kValueDtypes, scale_rows_checks)

}  // namespace mixtape
