// Negative log-likelihood of one target per row.
//   loss[r] = log sum_c exp x[r,c] - x[r,t[r]]        dx[r,c] = dloss[r] * (softmax(x)[r,c] - (c == t[r]))
// Shapes: x, dx [..., vocab], f32, bf16 or f16; t u32 or i32, one per row, in any shape; loss, dloss f32,
//   like t.
// A row whose target is kIgnoreTarget (2^32 - 1, as i32 -1) has loss 0 and gradient 0, whatever its logits
//   and dloss.
// A row whose dloss is 0 has gradient 0, whatever its logits: a masked row costs nothing and lets no NaN
//   through.
// Saved for backward: x, t, and lse f32 [rows,2] = max and log sum exp(x - max), two numbers so that rows
//   near 1e8 keep their differences.
// Deterministic. A NaN in a row makes its loss and gradient NaN.
// Accuracy: loss 1 unit + (80 + |x - max|) * 2^-24 absolute;
//   dx 2 units + (84 + 3 |x - max|) * 2^-24 * |dloss| * softmax, and 2^-126 where softmax is below that.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or an empty row;
//   index_out_of_range at wait for a target outside the vocabulary, its row being 0.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/cross_entropy/cross_entropy_params.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void cross_entropy_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& targets,
                           const Buffer& loss, const Buffer& lse);

// dx may be x, with Accumulate::no.
void cross_entropy_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& targets,
                            const Buffer& lse, const Buffer& dloss, const Buffer& dx,
                            Accumulate accumulate = Accumulate::no);

// Both at once, where dloss is known beforehand: the same values as one after the other, x read once where
// the device allows. dx may be x.
void cross_entropy_forward_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& targets,
                                    const Buffer& dloss, const Buffer& loss, const Buffer& dx);

Var cross_entropy(const Var& x, const Buffer& targets);

}  // namespace mixtape
