#include "mixtape/ops/softmax/softmax.h"

#include "mixtape/ops/softmax/softmax_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {

void softmax_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y) {
  check_values("softmax", "x", x);
  check_row("softmax", "x", x);
  check_like("softmax", "y", y, "x", x);
  const SoftmaxParams params{x.shape().rows(), x.shape().cols(), 0};
  encoder.encode({.kernel = str("softmax_forward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = {x},
                  .writes = {y}});
}

void softmax_backward(CommandEncoder& encoder, const Buffer& y, const Buffer& dy, const Buffer& dx,
                      Accumulate accumulate) {
  check_values("softmax_backward", "y", y);
  check_row("softmax_backward", "y", y);
  check_like("softmax_backward", "dy", dy, "y", y);
  check_like("softmax_backward", "dx", dx, "y", y);
  check_no_overlap("softmax_backward", "dx", dx, "y", y);
  const SoftmaxParams params{y.shape().rows(), y.shape().cols(), static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str("softmax_backward_", y.dtype()),
                  .params = params_bytes(params),
                  .reads = {y, dy},
                  .writes = {dx}});
}

Var softmax(const Var& x) {
  Tape& tape = common_tape("softmax", {x});
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  softmax_forward(tape.encoder(), x.value(), y);
  return tape.record("softmax", {x}, y, [y](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    softmax_backward(b.encoder(), y, b.dy(), dx, accumulate);
  });
}

}  // namespace mixtape
