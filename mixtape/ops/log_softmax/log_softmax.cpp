#include "mixtape/ops/log_softmax/log_softmax.h"

#include "mixtape/ops/log_softmax/log_softmax_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {

void log_softmax_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y, const Buffer& stats) {
  check_values("log_softmax", "x", x);
  check_row("log_softmax", "x", x);
  check_like("log_softmax", "y", y, "x", x);
  check_is("log_softmax", "stats", stats, DType::f32, {x.shape().rows(), 2});
  check_no_overlap("log_softmax", "y", y, "x", x);
  encoder.encode({.kernel = str("log_softmax_forward_", x.dtype()),
                  .params = params_bytes(LogSoftmaxParams{x.shape().rows(), x.shape().cols(), 0}),
                  .reads = {x},
                  .writes = {y, stats}});
}

void log_softmax_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& stats, const Buffer& dy,
                          const Buffer& dx, Accumulate accumulate) {
  check_values("log_softmax_backward", "x", x);
  check_row("log_softmax_backward", "x", x);
  check_is("log_softmax_backward", "stats", stats, DType::f32, {x.shape().rows(), 2});
  check_like("log_softmax_backward", "dy", dy, "x", x);
  check_like("log_softmax_backward", "dx", dx, "x", x);
  const LogSoftmaxParams params{x.shape().rows(), x.shape().cols(), static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str("log_softmax_backward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = {x, stats, dy},
                  .writes = {dx}});
}

Var log_softmax(const Var& x) {
  Tape& tape = common_tape("log_softmax", {x});
  check_values("log_softmax", "x", x.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  const Buffer stats = tape.alloc(DType::f32, {x.shape().rows(), 2});
  log_softmax_forward(tape.encoder(), x.value(), y, stats);
  return tape.record("log_softmax", {x}, y, [x = x.value(), stats](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    log_softmax_backward(b.encoder(), x, stats, b.dy(), dx, accumulate);
  });
}

}  // namespace mixtape
