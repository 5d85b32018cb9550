// Conversion between value dtypes.
//   y = x rounded to nearest even; every NaN becomes a quiet NaN of the same sign        dx = dy cast back
// Shapes: x, y, dy, dx equal, rank 1 or more. f32, bf16, f16, any to any.
// Saved for backward: nothing.
// Deterministic.
// Accuracy: exact apart from the one rounding.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// The dtypes of x and y say which cast; equal ones copy.
void cast_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& y);

// dx (+)= dy in dx's dtype.
void cast_backward(CommandEncoder& encoder, const Buffer& dy, const Buffer& dx,
                   Accumulate accumulate = Accumulate::no);

// x itself where it has that dtype.
Var cast(const Var& x, DType dtype);

}  // namespace mixtape
