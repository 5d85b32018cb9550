// Root-mean-square norm of each head, times a weight, then rotary position embedding: what rope/rope.h makes of what
// rms_norm/rms_norm.h makes of x, in one pass over memory.
//   rstd[h] = 1/sqrt(sum_c x[h,c]^2 / head_dim + eps)        n[h,c] = x[h,c] * rstd[h] * w[c]        y = rope(n)
//   g = rope(dy, -angle)        dx[h,c] = rstd * (g*w - x * rstd^2/head_dim * sum_c g*w*x)
//   dw[c] = sum_h g[h,c] * x[h,c] * rstd[h]
// Shapes: x, y, dy, dx [B, S, H, head_dim] of f32, bf16 or f16, w, dw [head_dim] of x's dtype or f32, rstd f32 [B*S*H],
//   positions u32 [B, S] or [S], inv_freq f32 [d/2] with d <= head_dim.
// n and g are f32: they are not rounded between the two.
// Saved for backward: x, w, rstd, positions and inv_freq.
// Deterministic: dw adds blocks of tokens whose size follows from the shape, then the blocks in order.
// Accuracy (u = 2^-24): forward 1 unit + (8 + head_dim/32) u * factor * (|n[a]| + |n[b]|); backward 1 unit of the result
//   + (12 + head_dim/16) u * rstd * (|g*w| + |x| rstd * mean |g*w*x| rstd) for dx,
//   + (8 + rows/64 + max(rows/64, 32)) u * rstd * sum_h |g*x| for dw, with |dy[a]| + |dy[b]| times factor as |g|.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, d of 0 or above head_dim, a factor that
//   is not finite, or an eps that is not a positive number.
#pragma once

#include "mixtape/ops/rope/rope.h"

namespace mixtape {

// What turns the heads.
struct RopeTurns {
  Buffer positions, inv_freq;
  RopeOptions options;
};

// y may be x.
void norm_rope_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, float eps,
                       const RopeTurns& turns, const Buffer& y, const Buffer& rstd);

// A target with a null buffer is not computed. dx may be dy.
void norm_rope_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& w, const Buffer& rstd,
                        const RopeTurns& turns, const Buffer& dy, const Backward::Target& dx,
                        const Backward::Target& dw);

Var norm_rope(const Var& x, const Var& w, float eps, const RopeTurns& turns);

}  // namespace mixtape
