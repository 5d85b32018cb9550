#include "mixtape/ops/reduce/reduce_check.h"

#include <algorithm>

#include "mixtape/ops/reduce/axes_check.h"
#include "mixtape/ops/reduce/reduce.h"
#include "mixtape/ops/reduce/reduce_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

namespace {

// Over rows of `cols`, whose elements are below 5 in magnitude.
OpCheck sum_check(const std::string& name, DType dtype, const Shape& shape, std::int64_t cols,
                  double divisor) {
  OpCheck check;
  check.name = str(name, " ", dtype, shape);
  check.inputs = {testing::random_tensor(dtype, shape, 3)};
  check.forward = [=](const auto& v) { return oracle::row_sum(v[0], cols, divisor); };
  check.complex_forward = [=](const auto& v) { return oracle::row_sum(v[0], cols, divisor); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::row_sum_backward(dy, cols, divisor)};
  };
  const auto n = static_cast<double>(std::min(cols, kSumBlock + cols / kSumBlock));
  check.forward_bound = {1.0, (8.0 + n / 16.0) * 0x1p-24 * 5.0 * static_cast<double>(cols) / divisor};
  check.backward_bound = {1.0, 0.0};
  check.prove_oracle = shape.numel() <= 600;
  return check;
}

constexpr std::int64_t kRowCols[] = {1, 7, 16, 33, 130};
constexpr std::int64_t kCounts[] = {1, 15, 130, 40001};

}  // namespace

OpCheck row_sum_check(DType dtype, const Shape& shape) {
  OpCheck check = sum_check("row_sum", dtype, shape, shape.cols(), 1.0);
  check.op = [](const std::vector<Var>& v) { return row_sum(v[0]); };
  return check;
}

OpCheck masked_mean_check(std::int64_t rows) {
  OpCheck check;
  check.name = str("masked_mean ", rows);
  testing::HostTensor weights = testing::random_indices({rows}, 8, 4, DType::f32);  // 0 to 3
  weights.values[0] = 2.0;
  check.inputs = {testing::random_tensor(DType::f32, {rows}, 3), weights};
  check.differentiable = {true, false};
  check.op = [](const std::vector<Var>& v) { return masked_mean(v[0], v[1]); };
  check.forward = [](const auto& v) -> Doubles { return {oracle::masked_mean(v[0], v[1])}; };
  check.complex_forward = [w = weights.values](const auto& v) -> testing::Complexes {
    return {oracle::masked_mean(v[0], w)};
  };
  check.backward = [](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::masked_mean_backward(v[1], dy[0]), {}};
  };
  check.forward_bound = {1.0, (8.0 + static_cast<double>(std::min(rows, kSumBlock)) / 16.0) * 0x1p-24 * 5.0};
  check.backward_bound = {2.0, 0.0};
  check.prove_oracle = rows <= 600;
  return check;
}

std::vector<OpCheck> row_sum_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const std::int64_t cols : kRowCols) checks.push_back(row_sum_check(dtype, {2, 2, cols}));
  checks.push_back(
      testing::empty_batch_check("row_sum", {testing::random_tensor(dtype, {0, 5}, 1)}, checks[0].op));
  return checks;
}

std::vector<OpCheck> row_mean_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks;
  for (const std::int64_t cols : kRowCols) {
    checks.push_back(sum_check("row_mean", dtype, {2, 2, cols}, cols, static_cast<double>(cols)));
    checks.back().op = [](const std::vector<Var>& v) { return row_mean(v[0]); };
  }
  checks.push_back(
      testing::empty_batch_check("row_mean", {testing::random_tensor(dtype, {0, 5}, 1)}, checks[0].op));
  return checks;
}

std::vector<OpCheck> sum_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = sum_over_axes_checks(dtype);
  for (const std::int64_t n : kCounts) {
    checks.push_back(sum_check("sum", dtype, {n}, n, 1.0));
    checks.back().op = [](const std::vector<Var>& v) { return sum(v[0]); };
  }
  checks.push_back(
      testing::empty_batch_check("sum", {testing::random_tensor(dtype, {0, 5}, 1)}, checks.back().op, 1));
  return checks;
}

std::vector<OpCheck> mean_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = mean_over_axes_checks(dtype);
  for (const std::int64_t n : kCounts) {
    checks.push_back(sum_check("mean", dtype, {n}, n, static_cast<double>(n)));
    checks.back().op = [](const std::vector<Var>& v) { return mean(v[0]); };
  }
  checks.push_back(
      testing::empty_batch_check("mean", {testing::random_tensor(dtype, {0, 5}, 1)}, checks.back().op, 1));
  return checks;
}

std::vector<OpCheck> masked_mean_checks(const Device&, DType) {
  std::vector<OpCheck> checks;
  for (const std::int64_t rows : {1, 5, 64, 33000}) checks.push_back(masked_mean_check(rows));
  checks.push_back(testing::empty_batch_check(
      "masked_mean", {testing::random_tensor(DType::f32, {0}, 1), testing::random_tensor(DType::f32, {0}, 2)},
      checks[0].op, 1));
  checks.back().differentiable = {true, false};
  return checks;
}

constexpr DType kOnlyF32[] = {DType::f32};
MIXTAPE_OP_CHECKS(row_sum, testing::kValueDtypes, row_sum_checks)
MIXTAPE_OP_CHECKS(row_mean, testing::kValueDtypes, row_mean_checks)
MIXTAPE_OP_CHECKS(sum, testing::kValueDtypes, sum_checks)
MIXTAPE_OP_CHECKS(mean, testing::kValueDtypes, mean_checks)
MIXTAPE_OP_CHECKS(masked_mean, kOnlyF32, masked_mean_checks)

}  // namespace mixtape
