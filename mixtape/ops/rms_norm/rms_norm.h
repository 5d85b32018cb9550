// Root-mean-square norm over the last axis, times a weight.
//   rstd[r] = 1/sqrt(sum_c x[r,c]^2 / cols + eps)        y[r,c] = x[r,c] * rstd[r] * w[c]
//   dx[r,c] = rstd * (dy*w - x * rstd^2/cols * sum_c dy*w*x)        dw[c] = sum_r dy[r,c] * x[r,c] * rstd[r]
// Shapes: x, y, dy, dx [..., cols], w, dw [cols], rstd f32 [rows]. f32, bf16, f16; w of x's dtype or f32.
// Sums in f32, outputs rounded once. A row of zeros gives 0 and the gradient dy*w/sqrt(eps).
// Saved for backward: x, w and rstd. dw is rebuilt from x, so a weight of 0 does no harm.
// Deterministic: dw adds blocks of rows whose size follows from the shape, then the blocks in order.
// Accuracy (u = 2^-24): forward 1 unit + (4 + cols/32) u; backward 1 unit of the result
//   + (8 + cols/16) u * rstd * (|dy*w| + |x| rstd * mean |dy*w*x| rstd) for dx,
//   + (4 + rows/64 + max(rows/64, 32)) u * rstd * sum_r |dy*x| for dw.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, an empty row, or an eps
//   that is not a positive number.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void rms_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, float eps, const Buffer& y,
                      const Buffer& rstd);

// A target with a null buffer is not computed. dx may be dy.
void rms_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& rstd,
                       const Buffer& dy, const Backward::Target& dx, const Backward::Target& dw);

Var rms_norm(const Var& x, const Var& w, float eps);

}  // namespace mixtape
