// Every row of the last axis divided by its length.
//   q[r] = 1/sqrt(sum_c x[r,c]^2 + eps)        y[r,c] = x[r,c] * q[r]
//   dx[r,c] = q * (dy - x * q^2 * sum_c x*dy)
// Shapes: x, y, dy, dx [..., cols], q f32 [rows]. f32, bf16, f16; sums in f32, outputs rounded once.
// Saved for backward: x and q.
// Deterministic. A NaN makes its row NaN.
// Edges: a row of zeros gives 0 and the gradient dy/sqrt(eps). A row whose sum of squares overflows f32 gives
//   0, with gradient 0.
// Accuracy (u = 2^-24): forward 1 unit + (4 + cols/32) u;
//   backward 1 unit of the result + (8 + cols/16) u * q * (|dy| + |x| q * sum |x*dy| q).
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, an empty row, or an eps
//   that is not a positive number.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// y may be x.
void l2_norm_forward(CommandEncoder& encoder, const Buffer& x, float eps, const Buffer& y, const Buffer& q);

// dx may be dy or x.
void l2_norm_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& q, const Buffer& dy,
                      const Buffer& dx, Accumulate accumulate = Accumulate::no);

Var l2_norm(const Var& x, float eps);

}  // namespace mixtape
