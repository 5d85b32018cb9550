#include "mixtape/ops/reduce/axes.h"

#include "mixtape/ops/reduce/reduce.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

// The axes of y that repeat x.
Axes repeated_axes(const Shape& x, const Shape& y) {
  const std::int64_t added = y.rank() - x.rank();
  Axes axes;
  for (std::int64_t a = 0; a < y.rank(); ++a) {
    if (a < added || x[a - added] != y[a]) axes.push_back(a);
  }
  return axes;
}

}  // namespace

Var sum(const Var& x, const ReducedAxes& over, bool keepdims) {
  common_tape("sum", {x});
  check_values("sum", "x", x.value());
  const auto [rows, shape] = reduction_rows("sum", x, over, keepdims);
  return reshape(row_sum(rows), shape);
}

Var mean(const Var& x, const ReducedAxes& over, bool keepdims) {
  common_tape("mean", {x});
  check_values("mean", "x", x.value());
  const auto [rows, shape] = reduction_rows("mean", x, over, keepdims);
  return reshape(row_mean(rows), shape);
}

Var expand(const Var& x, const Shape& shape) {
  Tape& tape = common_tape("expand", {x});
  if (shape == x.shape()) return x;
  require(x.shape().rank() > 0 && broadcast_shape("expand", x.shape(), shape) == shape, "expand: x is ",
          x.value(), ", expected sizes of 1 or those of ", shape);
  const Buffer y = tape.alloc(x.dtype(), shape);
  expand_forward(tape.encoder(), x.value(), y);
  return tape.record("expand", {x}, y, [axes = repeated_axes(x.shape(), shape)](Backward& b) {
    if (b.wants(0)) b.pass(0, sum(b.tape().constant(b.dy()), axes).value());
  });
}

}  // namespace mixtape
