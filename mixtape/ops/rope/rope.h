// Rotary position embedding: pairs of a head's dimensions are rotated by an angle that grows with position.
//   angle = position * inv_freq[i]                      i in 0 .. d/2-1, d = 2 * size of inv_freq
//   y[a] = factor * (x[a] cos - x[b] sin)               half_split: a = i, b = i + d/2
//   y[b] = factor * (x[b] cos + x[a] sin)               interleaved: a = 2i, b = 2i + 1
// The first d of head_dim dimensions are rotated, the others pass through. The gradient is the rotation by
// the negative angle, with the same factor: dx = rope(dy, -angle).
// Shapes: x, y, dy, dx [B, S, H, head_dim] of f32, bf16 or f16, positions u32 [B, S] or [S],
//   inv_freq f32 [d/2] with d <= head_dim.
// Angle, cosine and sine are computed once per token and pair, in f64 on the CPU and from 64 bits of the part
//   of a turn on GPUs (inv_freq below 2^24 there), so that no position is too large.
// Saved for backward: positions and inv_freq.
// Deterministic.
// Accuracy: half a unit of the result + 3 * 2^-24 * factor * (|x[a]| + |x[b]|).
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, d of 0 or
//   above head_dim, or a factor that is not finite.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

enum class RopePairs : std::uint32_t { half_split = 0, interleaved = 1 };

struct RopeOptions {
  RopePairs pairs = RopePairs::half_split;
  float factor = 1.0f;  // amplitude, as the scaled variants (yarn, longrope) want
};

// y may be x.
void rope_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& positions, const Buffer& inv_freq,
                  RopeOptions options, const Buffer& y);

// dx may be dy.
void rope_backward(CommandEncoder& encoder, const Buffer& positions, const Buffer& inv_freq,
                   RopeOptions options, const Buffer& dy, const Buffer& dx,
                   Accumulate accumulate = Accumulate::no);

Var rope(const Var& x, const Buffer& positions, const Buffer& inv_freq, RopeOptions options = {});

}  // namespace mixtape
