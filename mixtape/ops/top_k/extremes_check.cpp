#include "mixtape/ops/top_k/extremes_check.h"

#include "mixtape/ops/top_k/extremes.h"
#include "mixtape/ops/top_k/extremes_oracle.h"
#include "mixtape/testing/check_registry.h"

namespace mixtape {

using testing::Doubles;
using testing::OpCheck;

namespace {

// x is [outer, middle, inner]; the reduced axes are told by whether each is.
OpCheck extreme_check(DType dtype, const oracle::Box& box, const Axes& axes, bool is_max) {
  const Shape shape{box.outer, box.middle, box.inner};
  const double sign = is_max ? 1.0 : -1.0;
  const auto reduced = oracle::is_reduced(axes);
  OpCheck check;
  check.name = str(is_max ? "max " : "min ", dtype, shape, " over ", axes.size(), " axes from ", axes[0]);
  check.inputs = {testing::random_tensor(dtype, shape, 7)};
  check.op = [=](const std::vector<Var>& v) { return is_max ? max(v[0], axes) : min(v[0], axes, true); };
  const auto forward = [=](const auto& x) {
    auto y = x;
    y.clear();
    for (const std::size_t i : oracle::extreme_places(x, box, reduced, sign)) y.push_back(x[i]);
    return y;
  };
  check.forward = [=](const auto& v) { return forward(v[0]); };
  check.complex_forward = [=](const auto& v) { return forward(v[0]); };
  check.backward = [=](const auto& v, const Doubles& dy) -> std::vector<Doubles> {
    Doubles dx(v[0].size(), 0.0);
    const auto places = oracle::extreme_places(v[0], box, reduced, sign);
    for (std::size_t i = 0; i < dy.size(); ++i) dx[places[i]] += dy[i];
    return {dx};
  };
  check.forward_bound = {0.0, 0.0};
  check.backward_bound = {0.0, 0.0};
  check.prove_oracle = shape.numel() <= 300;
  return check;
}

std::vector<OpCheck> checks(DType dtype, bool is_max) {
  std::vector<OpCheck> all = {testing::empty_batch_check(
      is_max ? "max" : "min", {testing::random_tensor(dtype, {0, 5, 7}, 1)},
      [is_max](const std::vector<Var>& v) { return is_max ? max(v[0], {2}) : min(v[0], {2}); })};
  for (const Axes& axes : {Axes{2}, Axes{0}, Axes{1}, Axes{0, 2}, Axes{1, 2}, Axes{0, 1, 2}})
    all.push_back(extreme_check(dtype, {3, 5, 7}, axes, is_max));
  all.push_back(extreme_check(dtype, {2, 33, 65}, {1}, is_max));
  return all;
}

}  // namespace

std::vector<OpCheck> max_checks(const Device&, DType dtype) { return checks(dtype, true); }
std::vector<OpCheck> min_checks(const Device&, DType dtype) { return checks(dtype, false); }

MIXTAPE_OP_CHECKS(max, testing::kValueDtypes, max_checks)
MIXTAPE_OP_CHECKS(min, testing::kValueDtypes, min_checks)

}  // namespace mixtape
