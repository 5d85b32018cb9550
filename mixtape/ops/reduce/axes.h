// Sums and means over axes, and broadcasting, which is the other way round.
//   sum     y[i] = sum x over the reduced axes at the position i of the others           dx = dy[i]
//   mean    y[i] = sum x over them / their number of elements                            dx = dy[i] / that
//   expand  y = x broadcast as NumPy does: axes of size 1, and axes that x lacks in front, repeat
//           dx = sum of dy over the axes that repeat
// Shapes: x rank 1 to 8; y without the reduced axes, [1] where none is left, or with size 1 there if
//   dimensions are kept; axes count from the end where negative. y has x's dtype, f32, bf16 or f16 (expand:
//   any dtype forward). Sums in f32, outputs rounded once.
// Saved for backward: nothing.
// Deterministic: as row_sum (reduce.h), over rows that are copied together where the reduced axes aren't last.
// Edges: a sum over an axis of size 0 is 0, and so is a mean.
// Accuracy: of sums, means and expand's gradient as row_sum's; sums' gradients 1 unit; expand is exact.
// Errors: invalid_argument for no axes, an invalid axis or one named twice, dtypes or ranks that aren't
//   these, or shapes that don't broadcast.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/layout/layout.h"

namespace mixtape {

Var sum(const Var& x, const ReducedAxes& over, bool keepdims = false);
Var mean(const Var& x, const ReducedAxes& over, bool keepdims = false);

// x itself where it has that shape.
Var expand(const Var& x, const Shape& shape);

}  // namespace mixtape
