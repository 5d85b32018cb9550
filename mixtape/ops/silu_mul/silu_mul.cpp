#include "mixtape/ops/silu_mul/silu_mul.h"

#include "mixtape/ops/silu_mul/silu_mul_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {

void silu_mul_forward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up, const Buffer& y) {
  check_values("silu_mul", "gate", gate);
  check_not_empty("silu_mul", "gate", gate);
  check_like("silu_mul", "up", up, "gate", gate);
  check_like("silu_mul", "y", y, "gate", gate);
  encoder.encode({.kernel = str("silu_mul_forward_", gate.dtype()),
                  .params = params_bytes(SiluMulParams{gate.numel(), 0, 0, 0, 0}),
                  .reads = {gate, up},
                  .writes = {y}});
}

void silu_mul_backward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up, const Buffer& dy,
                       const Buffer& dgate, const Buffer& dup, Accumulate accumulate_dgate,
                       Accumulate accumulate_dup) {
  check_values("silu_mul_backward", "gate", gate);
  check_not_empty("silu_mul_backward", "gate", gate);
  check_like("silu_mul_backward", "up", up, "gate", gate);
  check_like("silu_mul_backward", "dy", dy, "gate", gate);
  if (dgate) check_like("silu_mul_backward", "dgate", dgate, "gate", gate);
  if (dup) check_like("silu_mul_backward", "dup", dup, "gate", gate);
  require(dgate || dup, "silu_mul_backward: dgate and dup are null, expected at least one");
  const bool adds_up =
      accumulate_dup == Accumulate::yes && dgate && dup && dgate.byte_offset() == dup.byte_offset();
  require(!overlap(dgate, dup) || adds_up,
          "silu_mul_backward: dgate shares memory with dup, expected separate buffers");
  const SiluMulParams params{gate.numel(), dgate ? 1u : 0u, dup ? 1u : 0u,
                             static_cast<std::uint32_t>(accumulate_dgate),
                             static_cast<std::uint32_t>(accumulate_dup)};
  encoder.encode({.kernel = str("silu_mul_backward_", gate.dtype()),
                  .params = params_bytes(params),
                  .reads = {gate, up, dy},
                  .writes = {dgate ? dgate : dup, dup ? dup : dgate}});
}

Var silu_mul(const Var& gate, const Var& up) {
  Tape& tape = common_tape("silu_mul", {gate, up});
  check_values("silu_mul", "gate", gate.value());
  check_like("silu_mul", "up", up.value(), "gate", gate.value());
  if (gate.value().numel() == 0) return tape.record_empty("silu_mul", {gate, up}, gate.dtype(), gate.shape());
  const Buffer y = tape.alloc(gate.dtype(), gate.shape());
  silu_mul_forward(tape.encoder(), gate.value(), up.value(), y);
  return tape.record("silu_mul", {gate, up}, y, [gate = gate.value(), up = up.value()](Backward& b) {
    const auto [dgate, accumulate_dgate] = b.grad(0);
    const auto [dup, accumulate_dup] = b.grad(1);
    silu_mul_backward(b.encoder(), gate, up, b.dy(), dgate, dup, accumulate_dgate, accumulate_dup);
  });
}

}  // namespace mixtape
