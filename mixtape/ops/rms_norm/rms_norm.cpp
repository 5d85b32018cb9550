#include "mixtape/ops/rms_norm/rms_norm.h"

#include <cmath>

#include "mixtape/autograd/gradients.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_inputs(const char* op, const Buffer& x, const Buffer& w) {
  check_values(op, "x", x);
  check_row(op, "x", x);
  require(w && (w.dtype() == x.dtype() || w.dtype() == DType::f32) && w.shape() == Shape{x.shape().cols()},
          op, ": w is ", w, ", expected ", x.dtype(), " or f32 ", Shape{x.shape().cols()}, " for x ", x);
}

std::string kernel_name(const char* stem, const Buffer& x, const Buffer& w) {
  return str(stem, x.dtype(), w.dtype() == x.dtype() ? "" : "_w_f32");
}

RmsNormParams params_of(const CommandEncoder& encoder, const Buffer& x) {
  RmsNormParams params{};
  params.rows = x.shape().rows();
  params.cols = x.shape().cols();
  params.row_block = encoder.device().caps().rows_per_block(params.rows);
  return params;
}

}  // namespace

void rms_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, float eps, const Buffer& y,
                      const Buffer& rstd) {
  check_inputs("rms_norm", x, w);
  require(std::isfinite(eps) && eps > 0.0f, "rms_norm: eps is ", eps, ", expected a positive number");
  check_like("rms_norm", "y", y, "x", x);
  check_is("rms_norm", "rstd", rstd, DType::f32, {x.shape().rows()});
  RmsNormParams params = params_of(encoder, x);
  params.eps = eps;
  encoder.encode({.kernel = kernel_name("rms_norm_forward_", x, w),
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
  RmsNormParams params = params_of(encoder, x);
  params.wanted = out.wanted();
  params.accumulate = out.accumulate();
  std::vector<Buffer> writes = out.writes();
  // dw comes in two steps: a partial sum per block of rows, then their sum.
  if (dw.buffer) {
    writes.back() = encoder.device().alloc_uninitialized(
        DType::f32, {(params.rows + params.row_block - 1) / params.row_block, params.cols});
  }
  encoder.encode({.kernel = kernel_name("rms_norm_backward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, w, rstd, dy},
                  .writes = writes});
  if (!dw.buffer) return;
  encoder.encode({.kernel = str("rms_norm_backward_weight_", w.dtype()),
                  .params = params_bytes(params),
                  .reads = {writes.back()},
                  .writes = {dw.buffer},
                  .is_empty = params.rows == 0,
                  .adds = dw.accumulate == Accumulate::yes});
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
