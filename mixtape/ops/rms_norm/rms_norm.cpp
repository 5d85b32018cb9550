#include "mixtape/ops/rms_norm/rms_norm.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/rms_norm/weighted_norm.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_inputs(const char* op, const Buffer& x, const Buffer& w) {
  check_values(op, "x", x);
  check_row(op, "x", x);
  check_norm_weight(op, x, w);
}

}  // namespace

void rms_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, float eps, const Buffer& y,
                      const Buffer& rstd) {
  check_inputs("rms_norm", x, w);
  check_eps("rms_norm", eps);
  check_like("rms_norm", "y", y, "x", x);
  check_is("rms_norm", "rstd", rstd, DType::f32, {x.shape().rows()});
  RmsNormParams params = norm_params(encoder, x.shape().rows(), x.shape().cols());
  params.eps = eps;
  encoder.encode({.kernel = weighted_kernel("rms_norm_forward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, w},
                  .writes = {y, rstd}});
}

void rms_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& rstd,
                       const Buffer& dy, const Backward::Target& dx, const Backward::Target& dw) {
  const char* op = "rms_norm_backward";
  check_inputs(op, x, w);
  check_is(op, "rstd", rstd, DType::f32, {x.shape().rows()});
  check_like(op, "dy", dy, "x", x);
  Gradients out(op, encoder);
  out.add("dx", dx, "x", x, {x});
  out.add("dw", dw, "w", w, {x, w, rstd, dy});
  if (out.writes().empty()) return;
  RmsNormParams params = norm_params(encoder, x.shape().rows(), x.shape().cols());
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  std::vector<Buffer> writes = out.writes();
  if (dw.buffer) writes.back() = alloc_partials(encoder, params);
  encoder.encode({.kernel = weighted_kernel("rms_norm_backward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, w, rstd, dy},
                  .writes = writes});
  if (dw.buffer) add_partials(encoder, params, writes.back(), dw);
}

Var rms_norm(const Var& x, const Var& w, float eps) {
  Tape& tape = common_tape("rms_norm", {x, w});
  check_inputs("rms_norm", x.value(), w.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  const Buffer rstd = tape.alloc(DType::f32, {x.shape().rows()});
  rms_norm_forward(tape.encoder(), x.value(), w.value(), eps, y, rstd);
  return tape.record("rms_norm", {x, w}, y, [x = x.value(), w = w.value(), rstd](Backward& b) {
    const auto dx = b.grad(0), dw = b.grad(1);
    rms_norm_backward(b.encoder(), x, w, rstd, b.dy(), dx, dw);
  });
}

}  // namespace mixtape
