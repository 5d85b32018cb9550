#include "mixtape/ops/layout/layout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "mixtape/core/checked.h"
#include "mixtape/ops/layout/layout_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_any(const char* op, const char* argument, const Buffer& found) {
  require(found && found.shape().rank() >= 1 && found.shape().rank() <= kMaxAxes, op, ": ", argument, " is ",
          found, ", expected rank 1 to ", kMaxAxes);
}

// A shape seen from one axis: [outer, size, inner].
struct View {
  std::int64_t outer = 1, size = 1, inner = 1;
  View(const Shape& shape, std::int64_t axis) : size(shape[axis]) {
    for (std::int64_t a = 0; a < axis; ++a) outer *= shape[a];
    for (std::int64_t a = axis + 1; a < shape.rank(); ++a) inner *= shape[a];
  }
};

std::string mover(const char* kernel, const Buffer& b, Accumulate accumulate) {
  return accumulate == Accumulate::yes ? str(kernel, "_add_", b.dtype())
                                       : str(kernel, "_", size_of(b.dtype()), "_bytes");
}

// What the runs don't cover stays.
void encode_runs(CommandEncoder& encoder, const Buffer& from, const Buffer& to, const RunsParams& params,
                 Accumulate accumulate) {
  encoder.encode({.kernel = mover("layout_runs", to, accumulate),
                  .params = params_bytes(params),
                  .reads = {from},
                  .writes = {to},
                  .is_empty = from.numel() == 0,
                  .adds = 1});
}

// `part` lies in `whole` at `start` along the axis.
std::int64_t check_part(const char* op, const char* part_name, const Buffer& part, const char* whole_name,
                        const Buffer& whole, std::int64_t axis, std::int64_t start) {
  check_any(op, whole_name, whole);
  check_any(op, part_name, part);
  const std::int64_t a = whole.shape().axis(axis, op);
  const bool fits = part.shape().rank() == whole.shape().rank() && part.dtype() == whole.dtype() &&
                    whole.shape().with(a, part.shape()[a]) == part.shape();
  require(fits, op, ": ", part_name, " is ", part, ", expected a part of ", whole_name, " ", whole,
          " along axis ", a);
  const std::int64_t stop = checked_add(op, start, part.shape()[a]);
  require(start >= 0 && stop <= whole.shape()[a], op, ": [", start, ",", stop, ") is outside axis ", a,
          " of ", whole_name, " ", whole);
  check_no_overlap(op, part_name, part, whole_name, whole);
  return a;
}

RunsParams part_runs(const Buffer& part, const Buffer& whole, std::int64_t axis, std::int64_t start,
                     bool is_whole_written) {
  const View p(part.shape(), axis), w(whole.shape(), axis);
  const std::int64_t length = p.size * p.inner, stride = w.size * w.inner, offset = start * w.inner;
  if (is_whole_written) return {p.outer, length, 0, length, offset, stride};
  return {p.outer, length, offset, stride, 0, length};
}

Axes checked_axes(const char* op, const Buffer& x, const Axes& axes) {
  check_any(op, "x", x);
  const auto rank = static_cast<std::size_t>(x.shape().rank());
  require(axes.size() == rank, op, ": got ", axes.size(), " axes, expected ", rank, " for x ", x);
  Axes order;
  std::vector<bool> seen(rank, false);
  for (const std::int64_t axis : axes) {
    const std::int64_t a = x.shape().axis(axis, op);
    require(!seen[static_cast<std::size_t>(a)], op, ": axis ", a, " is named twice");
    seen[static_cast<std::size_t>(a)] = true;
    order.push_back(a);
  }
  return order;
}

Shape permuted(const Shape& shape, const Axes& order) {
  std::vector<std::int64_t> dims;
  for (const std::int64_t a : order) dims.push_back(shape[a]);
  return Shape(dims);
}

std::vector<std::int64_t> strides_of(const Shape& shape) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()), 1);
  for (std::size_t a = strides.size() - 1; a > 0; --a)
    strides[a - 1] = strides[a] * shape[static_cast<std::int64_t>(a)];
  return strides;
}

// Reads axis a of y, of size dims[a], with strides[a]. Axes that stay neighbours become one, axes of size 1
// go; what is left has an axis of stride 1.
PermuteParams merged_axes(const std::vector<std::int64_t>& dims, const std::vector<std::int64_t>& strides) {
  PermuteParams p{};
  for (std::size_t a = 0; a < dims.size(); ++a) {
    const std::int64_t size = dims[a], stride = strides[a];
    if (size == 1) continue;
    if (p.rank > 0 && p.strides[p.rank - 1] == size * stride) {
      p.dims[p.rank - 1] *= size;
      p.strides[p.rank - 1] = stride;
    } else {
      p.dims[p.rank] = size;
      p.strides[p.rank++] = stride;
    }
  }
  if (p.rank == 0) return {1, {1}, {1}};
  if (p.rank == 1 && p.strides[0] == 0) return {2, {1, p.dims[0]}, {1, 0}};  // one element everywhere
  return p;
}

PermuteParams permute_params(const Shape& x, const Axes& order) {
  const std::vector<std::int64_t> all = strides_of(x);
  std::vector<std::int64_t> dims, strides;
  for (const std::int64_t a : order) {
    dims.push_back(x[a]);
    strides.push_back(all[static_cast<std::size_t>(a)]);
  }
  return merged_axes(dims, strides);
}

// An axis that repeats has stride 0.
PermuteParams expand_params(const Shape& x, const Shape& y) {
  std::vector<std::int64_t> strides = strides_of(x);
  for (std::size_t a = 0; a < strides.size(); ++a) {
    if (x[static_cast<std::int64_t>(a)] == 1) strides[a] = 0;
  }
  strides.insert(strides.begin(), static_cast<std::size_t>(y.rank() - x.rank()), 0);
  return merged_axes(y.dims(), strides);
}

void encode_permute(CommandEncoder& encoder, const char* op, const Buffer& x, const Axes& order,
                    const char* y_name, const Buffer& y, Accumulate accumulate) {
  check_is(op, y_name, y, x.dtype(), permuted(x.shape(), order));
  check_no_overlap(op, y_name, y, "its source", x);
  encoder.encode({.kernel = mover("permute", y, accumulate),
                  .params = params_bytes(permute_params(x.shape(), order)),
                  .reads = {x},
                  .writes = {y}});
}

Axes inverse(const Axes& order) {
  Axes back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return back;
}

std::int64_t check_repeat(const char* op, const char* x_name, const Buffer& x, std::int64_t axis,
                          std::int64_t times) {
  check_any(op, x_name, x);
  require(times >= 1, op, ": times is ", times, ", expected 1 or more");
  return x.shape().axis(axis, op);
}

Shape repeated(const char* op, const Shape& x, std::int64_t axis, std::int64_t times) {
  return x.with(axis, checked_mul(op, x[axis], times));
}

}  // namespace

void permute_forward(CommandEncoder& encoder, const Buffer& x, const Axes& axes, const Buffer& y) {
  encode_permute(encoder, "permute", x, checked_axes("permute", x, axes), "y", y, Accumulate::no);
}

void permute_backward(CommandEncoder& encoder, const Axes& axes, const Buffer& dy, const Buffer& dx,
                      Accumulate accumulate) {
  const Axes back = inverse(checked_axes("permute_backward", dy, axes));
  encode_permute(encoder, "permute_backward", dy, back, "dx", dx, accumulate);
}

void slice_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, std::int64_t start,
                   const Buffer& y) {
  const std::int64_t a = check_part("slice", "y", y, "x", x, axis, start);
  encode_runs(encoder, x, y, part_runs(y, x, a, start, false), Accumulate::no);
}

void slice_backward(CommandEncoder& encoder, std::int64_t axis, std::int64_t start, const Buffer& dy,
                    const Buffer& dx) {
  const std::int64_t a = check_part("slice_backward", "dy", dy, "dx", dx, axis, start);
  encode_runs(encoder, dy, dx, part_runs(dy, dx, a, start, true), Accumulate::yes);
}

void concat_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, std::int64_t start,
                    const Buffer& y) {
  const std::int64_t a = check_part("concat", "x", x, "y", y, axis, start);
  encode_runs(encoder, x, y, part_runs(x, y, a, start, true), Accumulate::no);
}

void put_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, const Buffer& start,
                 const Buffer& y) {
  const std::int64_t a = check_part("put", "x", x, "y", y, axis, 0);
  check_is("put", "start", start, DType::u32, {1});
  check_no_overlap("put", "y", y, "x", x);
  check_no_overlap("put", "y", y, "start", start);
  const RunsParams runs = part_runs(x, y, a, 0, true);
  const PutParams params{runs, y.shape()[a] == 0 ? 0 : runs.to_stride / y.shape()[a],
                         y.shape()[a] - x.shape()[a] + 1};
  encoder.encode({.kernel = mover("layout_put", y, Accumulate::no),
                  .params = params_bytes(params),
                  .reads = {x, start},
                  .writes = {y},
                  .is_empty = x.numel() == 0,
                  .adds = 1});
}

void concat_backward(CommandEncoder& encoder, std::int64_t axis, std::int64_t start, const Buffer& dy,
                     const Buffer& dx, Accumulate accumulate) {
  const std::int64_t a = check_part("concat_backward", "dx", dx, "dy", dy, axis, start);
  encode_runs(encoder, dy, dx, part_runs(dx, dy, a, start, false), accumulate);
}

void expand_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y) {
  check_any("expand", "x", x);
  check_any("expand", "y", y);
  require(y.dtype() == x.dtype() && broadcast_shape("expand", x.shape(), y.shape()) == y.shape(),
          "expand: x is ", x, ", expected sizes of 1 or those of y ", y);
  check_no_overlap("expand", "y", y, "x", x);
  encoder.encode({.kernel = mover("permute", y, Accumulate::no),
                  .params = params_bytes(expand_params(x.shape(), y.shape())),
                  .reads = {x},
                  .writes = {y}});
}

// Copy t of all entries at once, for each t.
void repeat_forward(CommandEncoder& encoder, const Buffer& x, std::int64_t axis, std::int64_t times,
                    const Buffer& y) {
  const std::int64_t a = check_repeat("repeat", "x", x, axis, times);
  check_is("repeat", "y", y, x.dtype(), repeated("repeat", x.shape(), a, times));
  check_no_overlap("repeat", "y", y, "x", x);
  const View v(x.shape(), a);
  for (std::int64_t t = 0; t < times; ++t) {
    encode_runs(encoder, x, y, {v.outer * v.size, v.inner, 0, v.inner, t * v.inner, times * v.inner},
                Accumulate::no);
  }
}

void repeat_backward(CommandEncoder& encoder, std::int64_t axis, std::int64_t times, const Buffer& dy,
                     const Buffer& dx, Accumulate accumulate) {
  const std::int64_t a = check_repeat("repeat_backward", "dx", dx, axis, times);
  check_values("repeat_backward", "dx", dx);
  check_is("repeat_backward", "dy", dy, dx.dtype(), repeated("repeat_backward", dx.shape(), a, times));
  check_no_overlap("repeat_backward", "dx", dx, "dy", dy);
  const View v(dx.shape(), a);
  const RepeatParams params{v.outer * v.size, times, v.inner, static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str("repeat_backward_", dx.dtype()),
                  .params = params_bytes(params),
                  .reads = {dy},
                  .writes = {dx}});
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  std::vector<std::int64_t> dims = a.rank() >= b.rank() ? a.dims() : b.dims();
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  for (std::int64_t i = 1; i <= shorter.rank(); ++i) {
    std::int64_t& size = dims[dims.size() - static_cast<std::size_t>(i)];
    const std::int64_t other = shorter[shorter.rank() - i];
    require(size == other || size == 1 || other == 1, op, ": shapes ", a, " and ", b,
            " don't broadcast, expected axis ", -i, " equal or 1");
    if (size == 1) size = other;
  }
  return Shape(dims);
}

Var permute(const Var& x, const Axes& axes) {
  Tape& tape = common_tape("permute", {x});
  const Axes order = checked_axes("permute", x.value(), axes);
  const Shape shape = permuted(x.shape(), order);
  const Buffer y = tape.alloc(x.dtype(), shape);
  permute_forward(tape.encoder(), x.value(), order, y);
  return tape.record("permute", {x}, y, [order](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    permute_backward(b.encoder(), order, b.dy(), dx, accumulate);
  });
}

Var transpose(const Var& x) {
  common_tape("transpose", {x});
  const std::int64_t rank = x.shape().rank();
  require(rank >= 2, "transpose: x is ", x.value(), ", expected rank 2 or more");
  Axes axes;
  for (std::int64_t a = 0; a < rank; ++a) axes.push_back(a);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  return permute(x, axes);
}

Var slice(const Var& x, std::int64_t axis, std::int64_t start, std::int64_t stop) {
  Tape& tape = common_tape("slice", {x});
  check_any("slice", "x", x.value());
  const std::int64_t a = x.shape().axis(axis, "slice");
  require(0 <= start && start <= stop && stop <= x.shape()[a], "slice: [", start, ",", stop,
          ") is outside axis ", a, " of x ", x.value());
  const Shape shape = x.shape().with(a, stop - start);
  const Buffer y = a == 0 ? x.value().slice(start, stop) : tape.alloc(x.dtype(), shape);
  if (a > 0) slice_forward(tape.encoder(), x.value(), a, start, y);
  return tape.record("slice", {x}, y, [a, start](Backward& b) {
    slice_backward(b.encoder(), a, start, b.dy(), b.grad_for_partial(0));
  });
}

Var concat(const std::vector<Var>& parts, std::int64_t axis) {
  Tape& tape = common_tape("concat", parts);
  const Var& first = parts.front();
  check_any("concat", "part 0", first.value());
  const std::int64_t a = first.shape().axis(axis, "concat");
  std::vector<std::int64_t> starts;
  std::int64_t size = 0;
  for (const Var& part : parts) {
    const bool fits = part.shape().rank() == first.shape().rank() && part.dtype() == first.dtype() &&
                      part.shape().with(a, first.shape()[a]) == first.shape();
    require(fits, "concat: part ", starts.size(), " is ", part.value(), ", expected ", first.value(),
            " like part 0, but for axis ", a);
    starts.push_back(size);
    size = checked_add("concat", size, part.shape()[a]);
  }
  const Shape shape = first.shape().with(a, size);
  const Buffer y = tape.alloc(first.dtype(), shape);
  for (std::size_t i = 0; i < parts.size(); ++i)
    concat_forward(tape.encoder(), parts[i].value(), a, starts[i], y);
  return tape.record("concat", parts, y, [a, starts](Backward& b) {
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const auto [dx, accumulate] = b.grad(i);
      if (dx) concat_backward(b.encoder(), a, starts[i], b.dy(), dx, accumulate);
    }
  });
}

Var reshape(const Var& x, const Shape& shape) {
  Tape& tape = common_tape("reshape", {x});
  return tape.record("reshape", {x}, x.value().reshape(shape), [](Backward& b) { b.pass(0, b.dy()); });
}

Var reshape(const Var& x, std::initializer_list<std::int64_t> sizes) {
  common_tape("reshape", {x});
  std::vector<std::int64_t> dims = sizes;
  const auto open = std::find(dims.begin(), dims.end(), -1);
  if (open == dims.end()) return reshape(x, Shape(dims));
  *open = 1;
  const std::int64_t known = Shape(dims).numel(), all = x.value().numel();  // a second -1 is refused here
  require(known > 0 && all % known == 0, "reshape: ", x.value(), " has ", all,
          " elements, expected a multiple of ", known, " for the sizes beside -1");
  *open = all / known;
  return reshape(x, Shape(dims));
}

Var repeat(const Var& x, std::int64_t axis, std::int64_t times) {
  Tape& tape = common_tape("repeat", {x});
  const std::int64_t a = check_repeat("repeat", "x", x.value(), axis, times);
  const Shape shape = repeated("repeat", x.shape(), a, times);
  const Buffer y = tape.alloc(x.dtype(), shape);
  repeat_forward(tape.encoder(), x.value(), a, times, y);
  return tape.record("repeat", {x}, y, [a, times](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    repeat_backward(b.encoder(), a, times, b.dy(), dx, accumulate);
  });
}

ReductionRows reduction_rows(const char* op, Var x, const ReducedAxes& over, bool keepdims) {
  common_tape(op, {x});
  check_any(op, "x", x.value());
  require(!over.axes().empty(), op, ": got no axes, expected 1 or more");
  std::vector<bool> is_reduced(static_cast<std::size_t>(x.shape().rank()), false);
  for (const std::int64_t axis : over.axes()) {
    const std::int64_t a = x.shape().axis(axis, op);
    require(!is_reduced[static_cast<std::size_t>(a)], op, ": axis ", a, " is named twice");
    is_reduced[static_cast<std::size_t>(a)] = true;
  }
  Axes order, last;
  std::vector<std::int64_t> left;
  std::int64_t positions = 1, elements = 1;
  for (std::int64_t a = 0; a < x.shape().rank(); ++a) {
    const bool goes = is_reduced[static_cast<std::size_t>(a)];
    (goes ? elements : positions) *= x.shape()[a];
    (goes ? last : order).push_back(a);
    if (!goes || keepdims) left.push_back(goes ? 1 : x.shape()[a]);
  }
  order.insert(order.end(), last.begin(), last.end());
  if (left.empty()) left.push_back(1);
  if (!std::is_sorted(order.begin(), order.end())) x = permute(x, order);
  return {reshape(x, Shape{positions, elements}), Shape(left)};
}

}  // namespace mixtape
