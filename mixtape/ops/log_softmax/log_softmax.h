// Logarithm of the softmax over the last axis, never as log(softmax(x)).
//   m = max_c x,  l = log sum_c exp(x[r,c] - m)
//   y[r,c] = (x[r,c] - m) - l        dx[r,c] = dy[r,c] - exp((x[r,c] - m) - l) * sum_c dy
// Shapes: x, y, dy, dx [..., cols], any cols >= 1, f32, bf16, f16; stats f32 [rows, 2], m and l of each row.
//   Sums in f32, outputs rounded once.
// Saved for backward: x and stats (a 16-bit y would lose the probabilities' accuracy).
// Deterministic.
// Edges: an entry of -inf gives -inf; a row of -inf gives NaN, a NaN in a row makes the row NaN.
// Accuracy: with e = (8 + |x - m| + cols/16) 2^-23: forward 1 unit + e; backward 1 unit + e (|dy| + p d),
//   where p is the probability and d the sum of |dy| over the row.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or an empty row.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void log_softmax_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y, const Buffer& stats);

// dx may be dy or x.
void log_softmax_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& stats, const Buffer& dy,
                          const Buffer& dx, Accumulate accumulate = Accumulate::no);

Var log_softmax(const Var& x);

}  // namespace mixtape
