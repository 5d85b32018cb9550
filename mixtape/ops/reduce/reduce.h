// Sums and means.
//   row_sum      y[r] = sum_c x[r,c]                      dx[r,c] = dy[r]
//   row_mean     y[r] = sum_c x[r,c] / cols               dx[r,c] = dy[r] / cols
//   sum          y = sum x                                dx = dy
//   mean         y = sum x / count                        dx = dy / count
//   masked_mean  y = sum_r w[r] l[r] / sum_r w[r]         dl[r] = dy w[r] / sum_r w[r]
//                A row of weight 0 is ignored whatever its loss; no weight at all gives 0 with gradient 0.
// Shapes: row_*: x, dx [rows..., cols], y, dy [rows...], or [1] for x of rank 1; dtypes equal, f32, bf16,
//   f16.
//   sum, mean: x, dx any shape, f32, bf16, f16; y, dy f32 [1].
//   masked_mean: loss, weights f32 [rows]; mean, total, dy f32 [1].
// Sums in f32, outputs rounded once.
// Saved for backward: nothing of sums and means; weights and their total of masked_mean.
// Deterministic: `sum` and its kin cut blocks of kSumBlock elements, whatever the thread count.
// Accuracy: 1 unit + (8 + n/16) 2^-24 of the sum of the terms' magnitudes, where n is cols, or for whole sums
//   kSumBlock + count/kSumBlock if that is less. Gradients 1 unit (masked_mean 2). NaN goes through.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree;
//   not_supported for weights that require a gradient.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/ops/reduce/reduce_params.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

enum class Reduction { sum, mean };

void row_reduce_forward(CommandEncoder& encoder, Reduction op, const Buffer& x, const Buffer& y);
void row_reduce_backward(CommandEncoder& encoder, Reduction op, const Buffer& dy, const Buffer& dx,
                         Accumulate accumulate = Accumulate::no);

void reduce_forward(CommandEncoder& encoder, Reduction op, const Buffer& x, const Buffer& y);
void reduce_backward(CommandEncoder& encoder, Reduction op, const Buffer& dy, const Buffer& dx,
                     Accumulate accumulate = Accumulate::no);

void masked_mean_forward(CommandEncoder& encoder, const Buffer& loss, const Buffer& weights,
                         const Buffer& mean, const Buffer& total);
void masked_mean_backward(CommandEncoder& encoder, const Buffer& weights, const Buffer& total,
                          const Buffer& dy, const Buffer& dloss, Accumulate accumulate = Accumulate::no);

Var row_sum(const Var& x);
Var row_mean(const Var& x);
Var sum(const Var& x);
Var mean(const Var& x);
Var masked_mean(const Var& loss, const Var& weights);

}  // namespace mixtape
