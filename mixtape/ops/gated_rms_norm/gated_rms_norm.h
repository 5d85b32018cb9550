// Root-mean-square norm over the last axis, times a weight and a gate.
//   rstd[r] = 1/sqrt(sum_c x[r,c]^2 / cols + eps)        n[r,c] = x[r,c] * rstd[r] * w[c]
//   y[r,c] = n[r,c] * silu(z[r,c])        silu(z) = z s(z),  s(z) = 1 / (1 + e^-z)
//   g = dy * silu(z)        dx[r,c] = rstd * (g*w - x * rstd^2/cols * sum_c g*w*x)
//   dw[c] = sum_r g[r,c] * x[r,c] * rstd[r]        dz[r,c] = dy * n * s(z) (1 + z s(-z))
// Shapes: x, z, y, dy, dx, dz [..., cols], w, dw [cols], rstd f32 [rows]. f32, bf16, f16; w of x's dtype or
//   f32. Sums in f32, outputs rounded once.
// Saved for backward: x, z, w and rstd. n is rebuilt from x, so a weight of 0 does no harm.
// Deterministic: dw adds blocks of rows whose size follows from the shape, then the blocks in order.
// Edges: a row of zeros gives 0, with the gradients g*w/sqrt(eps) and 0. silu(-inf) is 0 with gradient 0.
// Accuracy (u = 2^-24): forward 1 unit + (12 + cols/32) u; backward 1 unit of the result
//   + (16 + cols/16) u * rstd * (|g*w| + |x| rstd * mean |g*w*x| rstd) for dx,
//   + (12 + rows/64 + max(rows/64, 32)) u * rstd * sum_r |g*x| for dw, + (16 + cols/32) u |dy*n| for dz.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, an empty row, or an eps
//   that is not a positive number.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// y may be x or z.
void gated_rms_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& z, const Buffer& w,
                            float eps, const Buffer& y, const Buffer& rstd);

// A target with a null buffer is not computed. dx and dz are apart; dx may be dy, dz may be dy or z.
void gated_rms_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& z, const Buffer& w,
                             const Buffer& rstd, const Buffer& dy, const Backward::Target& dx,
                             const Backward::Target& dz, const Backward::Target& dw);

Var gated_rms_norm(const Var& x, const Var& z, const Var& w, float eps);

}  // namespace mixtape
