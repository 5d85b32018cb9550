// Layer norm over the last axis, times a weight, plus a bias; both optional.
//   mean[r] = sum_c x[r,c] / cols        rstd[r] = 1/sqrt(sum_c (x[r,c] - mean[r])^2 / cols + eps)
//   h[r,c] = (x[r,c] - mean[r]) * rstd[r]                y[r,c] = h[r,c] * w[c] + b[c]
//   g[r,c] = dy[r,c] * w[c]        dx[r,c] = rstd[r] * (g[r,c] - sum_c g / cols - h[r,c] * sum_c g h / cols)
//   dw[c] = sum_r dy[r,c] * h[r,c]                       db[c] = sum_r dy[r,c]
// Shapes: x, y, dy, dx [..., cols], w, b, dw, db [cols], stats f32 [rows,2]: mean and rstd. f32, bf16, f16, all but
//   stats of one dtype. Without w it counts as 1, without b as 0. Sums in f32, outputs rounded once.
// Saved for backward: x, w and stats.
// Deterministic: dw and db add blocks of rows whose size follows from the shape, then the blocks.
// Edges: a row of equal elements gives b. The mean is subtracted before squares are taken, so that rows far from 0
//   keep their digits. NaN stays in its row.
// Accuracy (u = 2^-24, m the largest |x| of a row): forward 1 unit + (8 + cols/16) u * |w| * (|h| + m rstd) + u |b|;
//   backward 1 unit of the result
//   + (16 + cols/8) u * rstd * (|g| + mean |g| + |h| mean |g h|) (1 + m rstd) for dx,
//   + (8 + rows/16) u * sum_r |dy| (|h| + m rstd) for dw, and of sum_r |dy| for db.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, an empty row, or an eps
//   that is not a positive number.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// w and b may be null. y may be x.
void layer_norm_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& b, float eps,
                        const Buffer& y, const Buffer& stats);

// A target with a null buffer is not computed. w may be null; then there is no dw. dx may be dy.
void layer_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& stats,
                         const Buffer& dy, const Backward::Target& dx, const Backward::Target& dw,
                         const Backward::Target& db);

Var layer_norm(const Var& x, float eps = 1e-5f);
Var layer_norm(const Var& x, const Var& w, float eps = 1e-5f);
Var layer_norm(const Var& x, const Var& w, const Var& b, float eps = 1e-5f);

}  // namespace mixtape
