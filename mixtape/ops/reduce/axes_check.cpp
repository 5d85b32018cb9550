#include "mixtape/ops/reduce/axes_check.h"

#include "mixtape/ops/reduce/axes.h"
#include "mixtape/ops/reduce/reduce_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

namespace {

struct AxesCase {
  Shape x;
  Axes axes;
};
// Last, first, middle and separate axes, all of them, and sizes of 1.
const std::vector<AxesCase>& cases() {
  static const std::vector<AxesCase> all = {
      {{3, 5}, {1}},    {{3, 5}, {0}},          {{2, 3, 5}, {1}}, {{2, 3, 5}, {0, 2}}, {{2, 3, 5}, {0, 1}},
      {{4, 3}, {0, 1}}, {{2, 3, 2, 5}, {1, 3}}, {{7}, {0}},       {{3, 1, 4}, {1}},    {{2, 70, 33}, {1}}};
  return all;
}

// Elements are below 5 in magnitude, gradients below 4.
double sum_error(double terms, double divisor) {
  return (8.0 + terms / 16.0) * 0x1p-24 * 5.0 * terms / divisor;
}

OpCheck over_axes_check(const char* name, DType dtype, const AxesCase& c, bool is_mean) {
  double terms = 1.0;
  for (const std::int64_t a : c.axes) terms *= static_cast<double>(c.x[a]);
  const double divisor = is_mean ? terms : 1.0;
  const auto places = oracle::reduced_places(c.x.dims(), c.axes);
  OpCheck check;
  check.name = str(name, " ", dtype, c.x, " over ", c.axes.size(), " axes from ", c.axes[0]);
  check.inputs = {testing::random_tensor(dtype, c.x, 3)};
  check.forward = [=](const auto& v) { return oracle::sum_to_places(v[0], places, divisor); };
  check.complex_forward = [=](const auto& v) { return oracle::sum_to_places(v[0], places, divisor); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::spread_from_places(dy, places, divisor)};
  };
  check.forward_bound = {1.0, sum_error(terms, divisor)};
  check.backward_bound = {1.0, 0.0};
  check.prove_oracle = c.x.numel() <= 600;
  return check;
}

OpCheck expand_check(DType dtype, const Shape& x, const Shape& y, const Axes& repeated) {
  const auto places = oracle::reduced_places(y.dims(), repeated);
  OpCheck check;
  check.name = str("expand ", dtype, x, " to ", y);
  check.inputs = {testing::random_tensor(dtype, x, 5)};
  check.op = [y](const std::vector<Var>& v) { return expand(v[0], y); };
  check.forward = [=](const auto& v) { return oracle::spread_from_places(v[0], places, 1.0); };
  check.complex_forward = [=](const auto& v) { return oracle::spread_from_places(v[0], places, 1.0); };
  check.backward = [=](const auto&, const Doubles& dy) -> std::vector<Doubles> {
    return {oracle::sum_to_places(dy, places, 1.0)};
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {1.0, sum_error(static_cast<double>(y.numel() / x.numel()), 1.0)};
  check.prove_oracle = y.numel() <= 600;
  return check;
}

}  // namespace

std::vector<OpCheck> sum_over_axes_checks(DType dtype) {
  std::vector<OpCheck> checks;
  for (const AxesCase& c : cases()) {
    checks.push_back(over_axes_check("sum", dtype, c, false));
    checks.back().op = [axes = c.axes](const std::vector<Var>& v) { return sum(v[0], axes); };
  }
  return checks;
}

std::vector<OpCheck> mean_over_axes_checks(DType dtype) {
  std::vector<OpCheck> checks;
  for (const AxesCase& c : cases()) {
    checks.push_back(over_axes_check("mean", dtype, c, true));
    checks.back().op = [axes = c.axes](const std::vector<Var>& v) { return mean(v[0], axes, true); };
  }
  return checks;
}

std::vector<OpCheck> expand_checks(const Device&, DType dtype) {
  std::vector<OpCheck> checks = {expand_check(dtype, {5}, {3, 5}, {0}),
                                 expand_check(dtype, {3, 1}, {3, 5}, {1}),
                                 expand_check(dtype, {1}, {4, 3}, {0, 1}),
                                 expand_check(dtype, {1, 1}, {2, 37}, {0, 1}),
                                 expand_check(dtype, {2, 1, 5}, {2, 3, 5}, {1}),
                                 expand_check(dtype, {3, 1}, {2, 3, 4}, {0, 2}),
                                 expand_check(dtype, {1, 3, 1, 2}, {4, 3, 5, 2}, {0, 2}),
                                 expand_check(dtype, {70, 1}, {70, 33}, {1}),
                                 expand_check(dtype, {2, 1, 5, 1, 3}, {2, 4, 5, 6, 3}, {1, 3})};
  checks.push_back(testing::empty_batch_check("expand", {testing::random_tensor(dtype, {0, 1}, 5)},
                                              [](const std::vector<Var>& v) {
                                                return expand(v[0], {2, 0, 3});
                                              }));
  return checks;
}

MIXTAPE_OP_CHECKS(expand, testing::kValueDtypes, expand_checks)

}  // namespace mixtape
