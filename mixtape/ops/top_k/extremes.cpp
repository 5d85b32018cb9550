#include "mixtape/ops/top_k/extremes.h"

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/top_k/top_k.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

Var extreme(const char* op, const Var& x, const ReducedAxes& over, bool keepdims, bool is_max) {
  common_tape(op, {x});
  check_values(op, "x", x.value());
  const auto [rows, shape] = reduction_rows(op, x, over, keepdims);
  require(rows.shape().cols() > 0, op, ": x is ", x.value(), ", expected no reduced axis of 0");
  const Var y = is_max ? top_k(rows, 1).values : neg(top_k(neg(rows), 1).values);
  return reshape(y, shape);
}

Var whole(const char* op, const Var& x, bool is_max) {
  common_tape(op, {x});
  check_values(op, "x", x.value());
  return extreme(op, reshape(x, Shape{x.value().numel()}), 0, false, is_max);
}

}  // namespace

Var max(const Var& x, const ReducedAxes& over, bool keepdims) {
  return extreme("max", x, over, keepdims, true);
}
Var min(const Var& x, const ReducedAxes& over, bool keepdims) {
  return extreme("min", x, over, keepdims, false);
}
Var max(const Var& x) { return whole("max", x, true); }
Var min(const Var& x) { return whole("min", x, false); }

}  // namespace mixtape
