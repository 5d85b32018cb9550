#include "mixtape/ops/gated_rms_norm/gated_rms_norm.h"

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/gated_rms_norm/gated_rms_norm_params.h"
#include "mixtape/ops/rms_norm/weighted_norm.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_inputs(const char* op, const Buffer& x, const Buffer& z, const Buffer& w) {
  check_values(op, "x", x);
  check_row(op, "x", x);
  check_like(op, "z", z, "x", x);
  check_norm_weight(op, x, w);
}

GatedRmsNormParams params_of(const CommandEncoder& encoder, const Buffer& x) {
  GatedRmsNormParams params{};
  params.norm = norm_params(encoder, x.shape().rows(), x.shape().cols());
  return params;
}

}  // namespace

void gated_rms_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& z, const Buffer& w,
                            float eps, const Buffer& y, const Buffer& rstd) {
  check_inputs("gated_rms_norm", x, z, w);
  check_eps("gated_rms_norm", eps);
  check_like("gated_rms_norm", "y", y, "x", x);
  check_is("gated_rms_norm", "rstd", rstd, DType::f32, {x.shape().rows()});
  GatedRmsNormParams params = params_of(encoder, x);
  params.norm.eps = eps;
  encoder.encode({.kernel = weighted_kernel("gated_rms_norm_forward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, z, w},
                  .writes = {y, rstd}});
}

void gated_rms_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& z, const Buffer& w,
                             const Buffer& rstd, const Buffer& dy, const Backward::Target& dx,
                             const Backward::Target& dz, const Backward::Target& dw) {
  // Inputs that are one variable: dx and dz share their buffer, and a row of it would be written twice at once.
  if (dx.buffer && overlap(dx.buffer, dz.buffer) && dz.accumulate == Accumulate::yes) {
    gated_rms_norm_backward(encoder, x, z, w, rstd, dy, dx, {}, {});
    return gated_rms_norm_backward(encoder, x, z, w, rstd, dy, {}, dz, dw);
  }
  const char* op = "gated_rms_norm_backward";
  check_inputs(op, x, z, w);
  check_is(op, "rstd", rstd, DType::f32, {x.shape().rows()});
  check_like(op, "dy", dy, "x", x);
  Gradients out(op, encoder);
  out.add("dx", dx, "x", x, {x, z});
  out.add("dz", dz, "z", z, {x});
  out.add("dw", dw, "w", w, {x, z, w, rstd, dy});
  if (out.writes().empty()) return;
  GatedRmsNormParams params = params_of(encoder, x);
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  std::vector<Buffer> writes = out.writes();
  if (dw.buffer) writes.back() = alloc_partials(encoder, params.norm);
  encoder.encode({.kernel = weighted_kernel("gated_rms_norm_backward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, z, w, rstd, dy},
                  .writes = writes});
  if (dw.buffer) add_partials(encoder, params.norm, writes.back(), dw);
}

Var gated_rms_norm(const Var& x, const Var& z, const Var& w, float eps) {
  Tape& tape = common_tape("gated_rms_norm", {x, z, w});
  check_inputs("gated_rms_norm", x.value(), z.value(), w.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  const Buffer rstd = tape.alloc(DType::f32, {x.shape().rows()});
  gated_rms_norm_forward(tape.encoder(), x.value(), z.value(), w.value(), eps, y, rstd);
  return tape.record("gated_rms_norm", {x, z, w}, y,
                     [x = x.value(), z = z.value(), w = w.value(), rstd](Backward& b) {
                       const auto dx = b.grad(0), dz = b.grad(1), dw = b.grad(2);
                       gated_rms_norm_backward(b.encoder(), x, z, w, rstd, b.dy(), dx, dz, dw);
                     });
}

}  // namespace mixtape
