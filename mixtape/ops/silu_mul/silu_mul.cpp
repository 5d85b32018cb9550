#include "mixtape/ops/silu_mul/silu_mul.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/silu_mul/silu_mul_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {

void silu_mul_forward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up, const Buffer& y) {
  check_values("silu_mul", "gate", gate);
  check_like("silu_mul", "up", up, "gate", gate);
  check_like("silu_mul", "y", y, "gate", gate);
  encoder.encode({.kernel = str("silu_mul_forward_", gate.dtype()),
                  .params = params_bytes(SiluMulParams{gate.numel(), 0, 0}),
                  .reads = {gate, up},
                  .writes = {y}});
}

void silu_mul_backward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up, const Buffer& dy,
                       const Backward::Target& dgate, const Backward::Target& dup) {
  check_values("silu_mul_backward", "gate", gate);
  check_like("silu_mul_backward", "up", up, "gate", gate);
  check_like("silu_mul_backward", "dy", dy, "gate", gate);
  Gradients out("silu_mul_backward", encoder);
  out.add("dgate", dgate, "gate", gate);
  out.add("dup", dup, "up", up);
  if (out.writes().empty()) return;
  encoder.encode({.kernel = str("silu_mul_backward_", gate.dtype()),
                  .params = params_bytes(SiluMulParams{gate.numel(), out.wanted(), out.accumulate()}),
                  .reads = {gate, up, dy},
                  .writes = out.writes()});
}

Var silu_mul(const Var& gate, const Var& up) {
  Tape& tape = common_tape("silu_mul", {gate, up});
  const Buffer y = tape.alloc(gate.dtype(), gate.shape());
  silu_mul_forward(tape.encoder(), gate.value(), up.value(), y);
  return tape.record("silu_mul", {gate, up}, y, [gate = gate.value(), up = up.value()](Backward& b) {
    const auto dgate = b.grad(0), dup = b.grad(1);
    silu_mul_backward(b.encoder(), gate, up, b.dy(), dgate, dup);
  });
}

}  // namespace mixtape
