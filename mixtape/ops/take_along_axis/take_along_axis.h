// Picks k elements of every row; the backward pass adds them back where they came from.
//   y[r,j] = x[r, index[r,j]]        dx[r, index[r,j]] += dy[r,j], in increasing j; 0 elsewhere
// Shapes: x, dx [..., cols]; index, y, dy [..., k] with the same leading dimensions, k <= cols. x f32, bf16,
//   f16; index u32 or i32.
// An index may repeat within a row: its gradients are summed in f32 and rounded once.
// Saved for backward: index, which carries no gradient.
// Deterministic.
// Accuracy: forward is exact; the gradient 0.5 units + k 2^-24 of the sum of the terms' magnitudes.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, k > cols, or an empty
//   row; index_out_of_range at wait, naming the lowest position in index and the value, for an index
//   outside [0, cols): its y is 0, its gradient is dropped.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void take_along_axis_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& index, const Buffer& y);

// Accumulate::no writes every element of dx, Accumulate::yes adds to those picked.
void take_along_axis_backward(CommandEncoder& encoder, const Buffer& index, const Buffer& dy,
                              const Buffer& dx, Accumulate accumulate = Accumulate::no);

Var take_along_axis(const Var& x, const Var& index);
Var take_along_axis(const Var& x, const Buffer& index);

}  // namespace mixtape
