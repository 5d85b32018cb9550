#include "mixtape/ops/l2_norm/l2_norm.h"

#include <cmath>

#include "mixtape/ops/l2_norm/l2_norm_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {

void l2_norm_forward(CommandEncoder& encoder, const Buffer& x, float eps, const Buffer& y, const Buffer& q) {
  check_values("l2_norm", "x", x);
  check_row("l2_norm", "x", x);
  require(std::isfinite(eps) && eps > 0.0f, "l2_norm: eps is ", eps, ", expected a positive number");
  check_like("l2_norm", "y", y, "x", x);
  check_is("l2_norm", "q", q, DType::f32, {x.shape().rows()});
  encoder.encode({.kernel = str("l2_norm_forward_", x.dtype()),
                  .params = params_bytes(L2NormParams{x.shape().rows(), x.shape().cols(), eps, 0}),
                  .reads = {x},
                  .writes = {y, q}});
}

void l2_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& q, const Buffer& dy,
                      const Buffer& dx, Accumulate accumulate) {
  check_values("l2_norm_backward", "x", x);
  check_row("l2_norm_backward", "x", x);
  check_is("l2_norm_backward", "q", q, DType::f32, {x.shape().rows()});
  check_like("l2_norm_backward", "dy", dy, "x", x);
  check_like("l2_norm_backward", "dx", dx, "x", x);
  const L2NormParams params{x.shape().rows(), x.shape().cols(), 0.0f, static_cast<std::uint32_t>(accumulate)};
  encoder.encode({.kernel = str("l2_norm_backward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = {x, q, dy},
                  .writes = {dx}});
}

Var l2_norm(const Var& x, float eps) {
  Tape& tape = common_tape("l2_norm", {x});
  check_values("l2_norm", "x", x.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  const Buffer q = tape.alloc(DType::f32, {x.shape().rows()});
  l2_norm_forward(tape.encoder(), x.value(), eps, y, q);
  return tape.record("l2_norm", {x}, y, [x = x.value(), q](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    l2_norm_backward(b.encoder(), x, q, b.dy(), dx, accumulate);
  });
}

}  // namespace mixtape
