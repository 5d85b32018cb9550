// Which entry of a row is next: the largest, or one drawn at random.
//   argmax    index[r] = the c with the largest x[r,c], the lowest of several
//   sample    index[r] is drawn from p = softmax(logits / temperature); argmax where temperature is 0.
//             Take part: with top_k > 0 the top_k most probable; with min_p > 0 those of at least min_p
//             times the largest p; with top_p < 1 the most probable of these that together reach top_p of
//             their sum; each with those just as probable as the last of them.
// A NaN stands above every number: a row that has one gives its place.
// Shapes: x, logits [..., cols], f32, bf16, f16; indices u32 [...], [1] for rank 1. argmax: cols below 2^32;
//   sample: at most 2^23.
// The draw depends on seed, row and step alone: random_bits(seed, (row << 32) + step) of core/random.h, as a
//   fraction of the sum of the weights, which are counted in the order of columns.
// Saved for backward: nothing, there is no gradient.
// Deterministic: weights are integers, so that every device gives the same indices.
// Accuracy: argmax exact. A weight errs by 1.1e-7 + |x - max|/temperature * 2^-23 relative, and by 2^-40 of
//   the largest; less probable entries are never drawn.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, an empty row, too many
//   columns, or options out of range.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

void argmax_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& indices);

struct SamplingOptions {
  double temperature = 1.0;
  double top_p = 1.0;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;  // the draw's number, below 2^32: the position of the token
  std::int64_t top_k = 0;  // 0: all
  double min_p = 0.0;
};

void sample_forward(CommandEncoder& encoder, const Buffer& logits, const SamplingOptions& options,
                    const Buffer& indices);

// On a tape, without a gradient: u32 without the axis, [1] where none is left, or with size 1 if dimensions
// are kept.
Var argmax(const Var& x, std::int64_t axis = -1, bool keepdims = false);
// Over the last axis: u32 [...], [1] for rank 1.
Var sample(const Var& logits, const SamplingOptions& options);

}  // namespace mixtape
