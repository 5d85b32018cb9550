#include "mixtape/ops/rope/rope.h"

#include <cmath>

#include "mixtape/ops/rope/rope_arguments.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {

RopeParams checked_rope(const char* op, const char* argument, const Buffer& x, const Buffer& positions,
                        const Buffer& inv_freq, RopeOptions options) {
  check_values(op, argument, x);
  require(x.shape().rank() == 4, op, ": ", argument, " is ", x,
          ", expected [batch, length, heads, head_dim]");
  const Shape each{x.shape()[0], x.shape()[1]}, shared{x.shape()[1]};
  require(positions && positions.dtype() == DType::u32 &&
              (positions.shape() == each || positions.shape() == shared),
          op, ": positions is ", positions, ", expected u32 ", each, " or ", shared);
  require(inv_freq && inv_freq.dtype() == DType::f32 && inv_freq.shape().rank() == 1 &&
              inv_freq.numel() > 0 && 2 * inv_freq.numel() <= x.shape()[3],
          op, ": inv_freq is ", inv_freq, ", expected f32 [1] to [", x.shape()[3] / 2, "]");
  require(std::isfinite(options.factor), op, ": factor is ", options.factor, ", expected a finite number");
  return {.batch = x.shape()[0],
          .length = x.shape()[1],
          .heads = x.shape()[2],
          .head_dim = x.shape()[3],
          .pairs = inv_freq.numel(),
          .position_batch = positions.shape().rank() == 2 ? x.shape()[0] : 1,
          .factor = options.factor,
          .is_interleaved = options.pairs == RopePairs::interleaved ? 1u : 0u,
          .accumulate = 0};
}

void rope_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& positions, const Buffer& inv_freq,
                  RopeOptions options, const Buffer& y) {
  const RopeParams params = checked_rope("rope", "x", x, positions, inv_freq, options);
  check_like("rope", "y", y, "x", x);
  encoder.encode({.kernel = str("rope_forward_", x.dtype()),
                  .params = params_bytes(params),
                  .reads = {x, positions, inv_freq},
                  .writes = {y}});
}

void rope_backward(CommandEncoder& encoder, const Buffer& positions, const Buffer& inv_freq,
                   RopeOptions options, const Buffer& dy, const Buffer& dx, Accumulate accumulate) {
  RopeParams params = checked_rope("rope_backward", "dy", dy, positions, inv_freq, options);
  check_like("rope_backward", "dx", dx, "dy", dy);
  params.accumulate = static_cast<std::uint32_t>(accumulate);
  encoder.encode({.kernel = str("rope_backward_", dy.dtype()),
                  .params = params_bytes(params),
                  .reads = {dy, positions, inv_freq},
                  .writes = {dx}});
}

Var rope(const Var& x, const Buffer& positions, const Buffer& inv_freq, RopeOptions options) {
  Tape& tape = common_tape("rope", {x});
  checked_rope("rope", "x", x.value(), positions, inv_freq, options);
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  rope_forward(tape.encoder(), x.value(), positions, inv_freq, options, y);
  return tape.record("rope", {x}, y, [=](Backward& b) {
    const auto [dx, accumulate] = b.grad(0);
    rope_backward(b.encoder(), positions, inv_freq, options, b.dy(), dx, accumulate);
  });
}

}  // namespace mixtape
