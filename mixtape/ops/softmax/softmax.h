// Softmax over the last axis.
//   y[r,c] = exp(x[r,c] - max_c x) / sum_c exp(x[r,c] - max_c x)        dx = y * (dy - sum_c y*dy)
// Shapes: x, y, dy, dx [..., cols], any cols >= 1. f32, bf16, f16; sums in f32, outputs rounded once.
// Saved for backward: y.
// Deterministic. A row of -inf gives NaN, a NaN in a row makes the row NaN.
// Accuracy: forward 8 + |x - max| units of f32, half a unit more in 16 bits, and 2^-126;
//   backward, of the y that was saved, 2 units + (8 + cols/16) * 2^-24 * max|dy| * y.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or an empty row.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void softmax_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y);

// dx may be dy. With Accumulate::yes dx is added to.
void softmax_backward(CommandEncoder& encoder, const Buffer& y, const Buffer& dy, const Buffer& dx,
                      Accumulate accumulate = Accumulate::no);

Var softmax(const Var& x);

}  // namespace mixtape
