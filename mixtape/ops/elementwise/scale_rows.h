// One factor per row.
//   y[r,c] = x[r,c] * s[r]        dx[r,c] = dy[r,c] * s[r]        ds[r] = sum_c dy[r,c] * x[r,c]
// Shapes: x, y, dy, dx [rows..., cols]; s, ds [rows...]. f32, bf16, f16; sums in f32, outputs rounded once.
// Saved for backward: x for ds, s for dx.
// Deterministic. NaN goes through.
// Accuracy: y and dx 0.5 units; ds 0.5 units + (4 + cols/32) 2^-24 of the sum of the terms' magnitudes.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// y may be x.
void scale_rows_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& s, const Buffer& y);

// dx may be dy.
void scale_rows_backward_x(CommandEncoder& encoder, const Buffer& s, const Buffer& dy, const Buffer& dx,
                           Accumulate accumulate = Accumulate::no);
void scale_rows_backward_s(CommandEncoder& encoder, const Buffer& x, const Buffer& dy, const Buffer& ds,
                           Accumulate accumulate = Accumulate::no);

Var scale_rows(const Var& x, const Var& s);

}  // namespace mixtape
