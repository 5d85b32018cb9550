// The largest and the smallest element over axes.
//   max  y[i] = the largest x over the reduced axes at the position i of the others
//   min  y[i] = the smallest                        dx = dy[i] at the element that y[i] is a copy of, 0 elsewhere
// Of several equal ones the first in row-major order takes the gradient. A NaN stands above every number in
// max and below every number in min.
// Shapes: x rank 1 to 8, f32, bf16 or f16; y like x without the reduced axes, [1] where none is left or all
//   are meant, or with size 1 there if dimensions are kept; axes count from the end where negative. Fewer than
//   2^32 elements are compared with each other.
// Saved for backward: the places of the elements (top_k with k = 1, of rows that are copied together where the
//   reduced axes aren't last).
// Deterministic.
// Accuracy: exact, values are copies.
// Errors: invalid_argument for no axes, an invalid axis or one named twice, dtypes or ranks that aren't these,
//   or nothing to choose from.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/layout/layout.h"

namespace mixtape {

Var max(const Var& x, const ReducedAxes& over, bool keepdims = false);
Var min(const Var& x, const ReducedAxes& over, bool keepdims = false);
// Over all axes: [1].
Var max(const Var& x);
Var min(const Var& x);

}  // namespace mixtape
