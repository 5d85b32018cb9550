#include "mixtape/ops/cross_entropy/cross_entropy.h"

#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_inputs(const char* op, const Buffer& x, const Buffer& targets) {
  check_values(op, "x", x);
  check_indices(op, "targets", targets);
  require(targets.numel() == x.shape().rows(), op, ": targets is ", targets, ", expected one per row of x ",
          x);
  check_row(op, "x", x);
}

CrossEntropyParams params_of(const Buffer& x, const Buffer& targets, Accumulate accumulate) {
  return {x.shape().rows(), x.shape().cols(), targets.dtype() == DType::i32,
          static_cast<std::uint32_t>(accumulate)};
}

}  // namespace

void cross_entropy_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& targets,
                           const Buffer& loss, const Buffer& lse) {
  check_inputs("cross_entropy", x, targets);
  check_is("cross_entropy", "loss", loss, DType::f32, targets.shape());
  check_is("cross_entropy", "lse", lse, DType::f32, {x.shape().rows(), 2});
  encoder.encode({.kernel = str("cross_entropy_forward_", x.dtype()),
                  .params = params_bytes(params_of(x, targets, Accumulate::no)),
                  .reads = {x, targets},
                  .writes = {loss, lse}});
}

void cross_entropy_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& targets,
                            const Buffer& lse, const Buffer& dloss, const Buffer& dx, Accumulate accumulate) {
  check_inputs("cross_entropy_backward", x, targets);
  check_is("cross_entropy_backward", "lse", lse, DType::f32, {x.shape().rows(), 2});
  check_is("cross_entropy_backward", "dloss", dloss, DType::f32, targets.shape());
  check_like("cross_entropy_backward", "dx", dx, "x", x);
  if (accumulate == Accumulate::yes) check_no_overlap("cross_entropy_backward", "dx", dx, "x", x);
  encoder.encode({.kernel = str("cross_entropy_backward_", x.dtype()),
                  .params = params_bytes(params_of(x, targets, accumulate)),
                  .reads = {x, targets, lse, dloss},
                  .writes = {dx}});
}

void cross_entropy_forward_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& targets,
                                    const Buffer& dloss, const Buffer& loss, const Buffer& dx) {
  const char* op = "cross_entropy_forward_backward";
  check_inputs(op, x, targets);
  check_is(op, "dloss", dloss, DType::f32, targets.shape());
  check_is(op, "loss", loss, DType::f32, targets.shape());
  check_no_overlap(op, "loss", loss, "dloss", dloss);
  check_like(op, "dx", dx, "x", x);
  encoder.encode({.kernel = str("cross_entropy_forward_backward_", x.dtype()),
                  .params = params_bytes(params_of(x, targets, Accumulate::no)),
                  .reads = {x, targets, dloss},
                  .writes = {loss, dx}});
}

Var cross_entropy(const Var& x, const Buffer& targets) {
  Tape& tape = common_tape("cross_entropy", {x});
  check_inputs("cross_entropy", x.value(), targets);
  const std::int64_t rows = x.shape().rows();
  const Buffer loss = tape.alloc(DType::f32, targets.shape());
  const Buffer lse = tape.alloc(DType::f32, {rows, 2});
  cross_entropy_forward(tape.encoder(), x.value(), targets, loss, lse);
  return tape.record("cross_entropy", {x}, loss, [x = x.value(), targets, lse](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    cross_entropy_backward(b.encoder(), x, targets, lse, b.dy(), dx, accumulate);
  });
}

}  // namespace mixtape
