// The k largest of every row, with their places.
//   values[r,j] = x[r, indices[r,j]], j = 0 .. k-1, by falling value; equal values by rising index
//   dx[r, indices[r,j]] = dvalues[r,j], every other element 0
// A NaN stands above every number, -0 equals +0; a row's k indices are distinct.
// Shapes: x, dx [..., cols], f32, bf16 or f16, cols below 2^32; values, dvalues [..., k] like x, indices u32
//   [..., k]; 1 <= k <= cols.
// Saved for backward: indices, which carry no gradient.
// Deterministic.
// Accuracy: exact, values are copies; dx is exact, rounded once with Accumulate::yes.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or a k
//   outside 1 .. cols; index_out_of_range at wait for an index of the backward outside the row.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// k is the last dimension of `values`.
void top_k_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& values, const Buffer& indices);

void top_k_backward(CommandEncoder& encoder, const Buffer& indices, const Buffer& dvalues, const Buffer& dx,
                    Accumulate accumulate = Accumulate::no);

struct TopK {
  Var values;
  Buffer indices;
};
TopK top_k(const Var& x, std::int64_t k);

}  // namespace mixtape
