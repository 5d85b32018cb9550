#include "mixtape/ops/rms_norm/rms_norm.h"

#include <cmath>

#include "mixtape/ops/rms_norm/rms_norm_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_inputs(const char* op, const Buffer& x, const Buffer& w) {
  check_values(op, "x", x);
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
  check_not_empty("rms_norm", "x", x);
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
  check_inputs("rms_norm_backward", x, w);
  check_not_empty("rms_norm_backward", "x", x);
  check_is("rms_norm_backward", "rstd", rstd, DType::f32, {x.shape().rows()});
  check_like("rms_norm_backward", "dy", dy, "x", x);
  RmsNormParams params = params_of(encoder, x);
  params.wants_dx = dx.buffer ? 1 : 0;
  params.wants_dw = dw.buffer ? 1 : 0;
  params.accumulate_dx = static_cast<std::uint32_t>(dx.accumulate);
  params.accumulate_dw = static_cast<std::uint32_t>(dw.accumulate);
  std::vector<Buffer> writes;
  if (dx.buffer) {
    check_like("rms_norm_backward", "dx", dx.buffer, "x", x);
    check_no_overlap("rms_norm_backward", "dx", dx.buffer, "x", x);
    writes.push_back(dx.buffer);
  }
  if (dw.buffer) {
    check_like("rms_norm_backward", "dw", dw.buffer, "w", w);
    check_device("rms_norm_backward", "dw", dw.buffer, encoder.device());
    for (const Buffer& read : {x, w, rstd, dy})
      check_no_overlap("rms_norm_backward", "dw", dw.buffer, "an input", read);
    check_gradients_apart("rms_norm_backward", "dx", dx.buffer, "dw", dw.buffer,
                          dw.accumulate == Accumulate::yes && dx.buffer.bytes() == dw.buffer.bytes());
    const std::int64_t blocks = (params.rows + params.row_block - 1) / params.row_block;
    writes.push_back(encoder.device().alloc_uninitialized(DType::f32, {blocks, params.cols}));
  }
  if (writes.empty()) return;
  encoder.encode({.kernel = kernel_name("rms_norm_backward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, w, rstd, dy},
                  .writes = writes});
  if (!dw.buffer) return;
  encoder.encode({.kernel = str("rms_norm_backward_weight_", w.dtype()),
                  .params = params_bytes(params),
                  .reads = {writes.back()},
                  .writes = {dw.buffer}});
}

Var rms_norm(const Var& x, const Var& w, float eps) {
  Tape& tape = common_tape("rms_norm", {x, w});
  check_inputs("rms_norm", x.value(), w.value());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  const Buffer rstd = tape.alloc(DType::f32, {x.shape().rows()});
  if (x.shape().rows() > 0) rms_norm_forward(tape.encoder(), x.value(), w.value(), eps, y, rstd);
  return tape.record("rms_norm", {x, w}, y, [x = x.value(), w = w.value(), rstd](Backward& b) {
    if (x.shape().rows() == 0) return b.pass_zeros();
    const Backward::Target dx = b.grad(0), dw = b.grad(1);  // in this order: x may be w
    rms_norm_backward(b.encoder(), x, w, rstd, b.dy(), dx, dw);
  });
}

}  // namespace mixtape
