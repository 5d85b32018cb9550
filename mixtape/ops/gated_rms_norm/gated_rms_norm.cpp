#include "mixtape/ops/gated_rms_norm/gated_rms_norm.h"

#include <cmath>

#include "mixtape/ops/gated_rms_norm/gated_rms_norm_params.h"
#include "mixtape/runtime/checks.h"

namespace mixtape {
namespace {

void check_inputs(const char* op, const Buffer& x, const Buffer& z, const Buffer& w) {
  check_values(op, "x", x);
  check_like(op, "z", z, "x", x);
  require(w && (w.dtype() == x.dtype() || w.dtype() == DType::f32) && w.shape() == Shape{x.shape().cols()},
          op, ": w is ", w, ", expected ", x.dtype(), " or f32 ", Shape{x.shape().cols()}, " for x ", x);
}

std::string kernel_name(const char* stem, const Buffer& x, const Buffer& w) {
  return str(stem, x.dtype(), w.dtype() == x.dtype() ? "" : "_w_f32");
}

GatedRmsNormParams params_of(const CommandEncoder& encoder, const Buffer& x) {
  GatedRmsNormParams params{};
  params.norm.rows = x.shape().rows();
  params.norm.cols = x.shape().cols();
  params.norm.row_block = encoder.device().caps().rows_per_block(params.norm.rows);
  return params;
}

// dw is written by a second dispatch: what the first reads and writes is checked here.
void check_weight_gradient(const char* op, const Device& device, const std::vector<Buffer>& others,
                           const Backward::Target& dw) {
  check_device(op, "dw", dw.buffer, device);
  for (const Buffer& other : others) check_no_overlap(op, "dw", dw.buffer, "another buffer", other);
}

}  // namespace

void gated_rms_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& z, const Buffer& w,
                            float eps, const Buffer& y, const Buffer& rstd) {
  check_inputs("gated_rms_norm", x, z, w);
  check_not_empty("gated_rms_norm", "x", x);
  require(std::isfinite(eps) && eps > 0.0f, "gated_rms_norm: eps is ", eps, ", expected a positive number");
  check_like("gated_rms_norm", "y", y, "x", x);
  check_is("gated_rms_norm", "rstd", rstd, DType::f32, {x.shape().rows()});
  GatedRmsNormParams params = params_of(encoder, x);
  params.norm.eps = eps;
  encoder.encode({.kernel = kernel_name("gated_rms_norm_forward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, z, w},
                  .writes = {y, rstd}});
}

void gated_rms_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& z, const Buffer& w,
                             const Buffer& rstd, const Buffer& dy, const Backward::Target& dx,
                             const Backward::Target& dz, const Backward::Target& dw) {
  constexpr const char* kOp = "gated_rms_norm_backward";
  check_inputs(kOp, x, z, w);
  check_not_empty(kOp, "x", x);
  check_is(kOp, "rstd", rstd, DType::f32, {x.shape().rows()});
  check_like(kOp, "dy", dy, "x", x);
  if (dx.buffer) check_like(kOp, "dx", dx.buffer, "x", x);
  if (dz.buffer) check_like(kOp, "dz", dz.buffer, "x", x);
  if (dw.buffer) check_like(kOp, "dw", dw.buffer, "w", w);
  if (dx.buffer) check_no_overlap(kOp, "dx", dx.buffer, "x", x);
  if (dx.buffer) check_no_overlap(kOp, "dx", dx.buffer, "z", z);
  if (dz.buffer) check_no_overlap(kOp, "dz", dz.buffer, "x", x);
  if (dw.buffer) check_weight_gradient(kOp, encoder.device(), {x, z, w, rstd, dy, dx.buffer, dz.buffer}, dw);
  if (dx.buffer && dz.buffer) check_no_overlap(kOp, "dx", dx.buffer, "dz", dz.buffer);
  GatedRmsNormParams params = params_of(encoder, x);
  params.norm.wants_dx = dx.buffer ? 1 : 0;
  params.norm.wants_dw = dw.buffer ? 1 : 0;
  params.norm.accumulate_dx = static_cast<std::uint32_t>(dx.accumulate);
  params.norm.accumulate_dw = static_cast<std::uint32_t>(dw.accumulate);
  params.wants_dz = dz.buffer ? 1 : 0;
  params.accumulate_dz = static_cast<std::uint32_t>(dz.accumulate);
  std::vector<Buffer> writes;
  if (dx.buffer) writes.push_back(dx.buffer);
  if (dz.buffer) writes.push_back(dz.buffer);
  if (dw.buffer) {
    const std::int64_t blocks = (params.norm.rows + params.norm.row_block - 1) / params.norm.row_block;
    writes.push_back(encoder.device().alloc_uninitialized(DType::f32, {blocks, params.norm.cols}));
  }
  if (writes.empty()) return;
  encoder.encode({.kernel = kernel_name("gated_rms_norm_backward_", x, w),
                  .params = params_bytes(params),
                  .reads = {x, z, w, rstd, dy},
                  .writes = writes});
  if (!dw.buffer) return;
  encoder.encode({.kernel = str("rms_norm_backward_weight_", w.dtype()),
                  .params = params_bytes(params.norm),
                  .reads = {writes.back()},
                  .writes = {dw.buffer}});
}

Var gated_rms_norm(const Var& x, const Var& z, const Var& w, float eps) {
  Tape& tape = common_tape("gated_rms_norm", {x, z, w});
  check_inputs("gated_rms_norm", x.value(), z.value(), w.value());
  if (x.shape().rows() == 0) return tape.record_empty("gated_rms_norm", {x, z, w}, x.dtype(), x.shape());
  const Buffer y = tape.alloc(x.dtype(), x.shape());
  const Buffer rstd = tape.alloc(DType::f32, {x.shape().rows()});
  gated_rms_norm_forward(tape.encoder(), x.value(), z.value(), w.value(), eps, y, rstd);
  return tape.record(
      "gated_rms_norm", {x, z, w}, y, [x = x.value(), z = z.value(), w = w.value(), rstd](Backward& b) {
        const Backward::Target dx = b.grad(0), dz = b.grad(1), dw = b.grad(2);  // in this order
        gated_rms_norm_backward(b.encoder(), x, z, w, rstd, b.dy(), dx, dz, dw);
      });
}

}  // namespace mixtape
