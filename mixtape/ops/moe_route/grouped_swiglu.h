// The gated half of experts' SwiGLU feed-forward, over rows that are sorted by expert: grouped_matmul and silu_mul in one
// record, so that what both products give dx is one pass on GPUs.
//   y[t] = silu(gate[e] x[t]) * (up[e] x[t])     for the rows offsets[e] <= t < offsets[e+1] of expert e
// Shapes: x [T,K], gate and up [E,N,K], offsets u32 [E+1], y [T,N]. f32, bf16 or f16, all the same.
// Saved for backward: x, gate, up, offsets and both products.
// Deterministic: same bits for any thread count.
// Accuracy: that of grouped_matmul and silu_mul, whose values in between are rounded to the dtype.
// Errors: theirs.
#pragma once

#include "mixtape/autograd/tape.h"

namespace mixtape {

Var grouped_swiglu(const Var& x, const Var& gate, const Var& up, const Buffer& offsets);

}  // namespace mixtape
