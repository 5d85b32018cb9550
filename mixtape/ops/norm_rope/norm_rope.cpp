#include "mixtape/ops/norm_rope/norm_rope.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/norm_rope/norm_rope_params.h"
#include "mixtape/ops/rms_norm/weighted_norm.h"
#include "mixtape/ops/rope/rope_arguments.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

NormRopeParams checked_params(const CommandEncoder& encoder, const char* op, const Buffer& x, const Buffer& w,
                              const RopeTurns& turns) {
  NormRopeParams params{};
  params.rope = checked_rope(op, "x", x, turns.positions, turns.inv_freq, turns.options);
  check_norm_weight(op, x, w);
  params.norm = norm_params(encoder, params.rope.batch * params.rope.length, params.rope.head_dim);
  return params;
}

Shape rstd_shape(const Buffer& x) { return {x.shape().rows()}; }

}  // namespace

void norm_rope_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, float eps,
                       const RopeTurns& turns, const Buffer& y, const Buffer& rstd) {
  NormRopeParams params = checked_params(encoder, "norm_rope", x, w, turns);
  check_eps("norm_rope", eps);
  check_like("norm_rope", "y", y, "x", x);
  check_is("norm_rope", "rstd", rstd, DType::f32, rstd_shape(x));
  params.norm.eps = eps;
  encoder.encode({.kernel = weighted_kernel("norm_rope_forward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, w, turns.positions, turns.inv_freq},
                  .writes = {y, rstd}});
}

void norm_rope_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& rstd,
                        const RopeTurns& turns, const Buffer& dy, const Backward::Target& dx,
                        const Backward::Target& dw) {
  const char* op = "norm_rope_backward";
  NormRopeParams params = checked_params(encoder, op, x, w, turns);
  check_is(op, "rstd", rstd, DType::f32, rstd_shape(x));
  check_like(op, "dy", dy, "x", x);
  Gradients out(op, encoder);
  out.add("dx", dx, "x", x, {x});
  out.add("dw", dw, "w", w, {x, w, rstd, dy, turns.positions, turns.inv_freq});
  if (out.writes().empty()) return;
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  std::vector<Buffer> writes = out.writes();
  if (dw.buffer) writes.back() = alloc_partials(encoder, params.norm);
  encoder.encode({.kernel = weighted_kernel("norm_rope_backward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, w, turns.positions, turns.inv_freq, rstd, dy},
                  .writes = writes,
                  .is_empty = x.numel() == 0});
  if (dw.buffer) add_partials(encoder, params.norm, writes.back(), dw);
}

Var norm_rope(const Var& x, const Var& w, float eps, const RopeTurns& turns) {
  Tape& tape = common_tape("norm_rope", {x, w});
  checked_params(tape.encoder(), "norm_rope", x.value(), w.value(), turns);
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  const Buffer rstd = tape.alloc(DType::f32, rstd_shape(x.value()));
  norm_rope_forward(tape.encoder(), x.value(), w.value(), eps, turns, y, rstd);
  return tape.record("norm_rope", {x, w}, y, [x = x.value(), w = w.value(), rstd, turns](Backward& b) {
    const auto dx = b.grad(0), dw = b.grad(1);
    norm_rope_backward(b.encoder(), x, w, rstd, turns, b.dy(), dx, dw);
  });
}

}  // namespace mixtape
