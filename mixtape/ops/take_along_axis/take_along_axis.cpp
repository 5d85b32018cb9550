#include "mixtape/ops/take_along_axis/take_along_axis.h"

#include "mixtape/ops/take_along_axis/take_along_axis_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_shapes(const char* op, const Buffer& x, const char* x_name, const Buffer& index) {
  check_values(op, x_name, x);
  check_indices(op, "index", index);
  const Shape& shape = index.shape();
  require(shape.rank() == x.shape().rank() && x.shape().with(shape.rank() - 1, shape.cols()) == shape, op,
          ": index is ", index, ", expected the leading dimensions of ", x_name, " ", x);
  require(shape.cols() <= x.shape().cols(), op, ": index is ", index, ", expected at most ", x.shape().cols(),
          " per row of ", x_name, " ", x);
}

void encode(CommandEncoder& encoder, const char* kernel, const Buffer& wide, const Buffer& index,
            const Buffer& from, const Buffer& to, Accumulate accumulate) {
  const TakeAlongAxisParams params{wide.shape().rows(), wide.shape().cols(), index.shape().cols(),
                                   index.dtype() == DType::i32 ? 1u : 0u,
                                   static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str(kernel, wide.dtype()),
                  .params = params_bytes(params),
                  .reads = {from, index},
                  .writes = {to},
                  .is_empty = index.numel() == 0,
                  .adds = params.accumulate});
}

}  // namespace

void take_along_axis_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& index, const Buffer& y) {
  check_shapes("take_along_axis", x, "x", index);
  check_row("take_along_axis", "x", x);
  check_is("take_along_axis", "y", y, x.dtype(), index.shape());
  check_no_overlap("take_along_axis", "y", y, "x", x);
  encode(encoder, "take_along_axis_forward_", x, index, x, y, Accumulate::no);
}

void take_along_axis_backward(CommandEncoder& encoder, const Buffer& index, const Buffer& dy,
                              const Buffer& dx, Accumulate accumulate) {
  check_shapes("take_along_axis_backward", dx, "dx", index);
  check_row("take_along_axis_backward", "dx", dx);
  check_is("take_along_axis_backward", "dy", dy, dx.dtype(), index.shape());
  check_no_overlap("take_along_axis_backward", "dx", dx, "dy", dy);
  encode(encoder, "take_along_axis_backward_", dx, index, dy, dx, accumulate);
}

Var take_along_axis(const Var& x, const Var& index) {
  Tape& tape = common_tape("take_along_axis", {x, index});
  check_shapes("take_along_axis", x.value(), "x", index.value());
  const Buffer y = tape.alloc(x.dtype(), index.shape());
  take_along_axis_forward(tape.encoder(), x.value(), index.value(), y);
  return tape.record("take_along_axis", {x, index}, y, [index = index.value()](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    take_along_axis_backward(b.encoder(), index, b.dy(), dx, accumulate);
  });
}

Var take_along_axis(const Var& x, const Buffer& index) {
  return take_along_axis(x, x.tape().constant(index));
}

}  // namespace mixtape
