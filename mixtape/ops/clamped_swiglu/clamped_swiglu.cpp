#include "mixtape/ops/clamped_swiglu/clamped_swiglu.h"

#include <cmath>

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/clamped_swiglu/clamped_swiglu_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

ClampedSwigluParams check(const char* op, const Buffer& gate, const Buffer& up,
                          const ClampedSwigluOptions& options) {
  check_values(op, "gate", gate);
  check_like(op, "up", up, "gate", gate);
  const auto check_positive = [&](const char* name, float v) {
    require(v > 0.0f && std::isfinite(v), op, ": ", name, " is ", v, ", expected a number above 0");
  };
  check_positive("alpha", options.alpha);
  check_positive("limit", options.limit);
  return {
      .count = gate.numel(), .alpha = options.alpha, .limit = options.limit, .wanted = 0, .accumulate = 0};
}

}  // namespace

void clamped_swiglu_forward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up,
                            const ClampedSwigluOptions& options, const Buffer& y) {
  const char* op = "clamped_swiglu";
  const ClampedSwigluParams params = check(op, gate, up, options);
  check_like(op, "y", y, "gate", gate);
  encoder.encode({.kernel = str("clamped_swiglu_forward_", gate.dtype()),
                  .params = params_bytes(params),
                  .reads = {gate, up},
                  .writes = {y}});
}

void clamped_swiglu_backward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up,
                             const ClampedSwigluOptions& options, const Buffer& dy,
                             const Backward::Target& dgate, const Backward::Target& dup) {
  const char* op = "clamped_swiglu_backward";
  ClampedSwigluParams params = check(op, gate, up, options);
  check_like(op, "dy", dy, "gate", gate);
  Gradients out(op, encoder);
  out.add("dgate", dgate, "gate", gate);
  out.add("dup", dup, "up", up);
  if (out.writes().empty()) return;
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  encoder.encode({.kernel = str("clamped_swiglu_backward_", gate.dtype()),
                  .params = params_bytes(params),
                  .reads = {gate, up, dy},
                  .writes = out.writes()});
}

Var clamped_swiglu(const Var& gate, const Var& up, const ClampedSwigluOptions& options) {
  Tape& tape = common_tape("clamped_swiglu", {gate, up});
  const Buffer y = tape.alloc(gate.dtype(), gate.shape());
  clamped_swiglu_forward(tape.encoder(), gate.value(), up.value(), options, y);
  return tape.record("clamped_swiglu", {gate, up}, y,
                     [gate = gate.value(), up = up.value(), options](Backward& b) {
                       const auto dgate = b.grad(0), dup = b.grad(1);
                       clamped_swiglu_backward(b.encoder(), gate, up, options, b.dy(), dgate, dup);
                     });
}

}  // namespace mixtape
