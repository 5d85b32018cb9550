// A gated half of a feed-forward whose parts are clamped, with a logistic function of steepness alpha.
//   g = min(gate, limit),  u = max(-limit, min(up, limit)),  y = g s(alpha g) (u + 1),  s(x) = 1 / (1 + e^-x)
//   dgate = dy (u + 1) s(alpha g) (1 + alpha g s(-alpha g)) where gate <= limit, else 0
//   dup = dy g s(alpha g) where -limit <= up <= limit, else 0
// Shapes: gate, up, y, dy, dgate, dup equal, rank 1 or more. f32, bf16, f16; computed in f32, rounded once.
// Saved for backward: gate and up.
// Deterministic; both gradients come from one pass.
// Edges: NaN goes through; at -inf a gate gives 0 with gradient 0. What is clamped has gradient 0.
// Accuracy, with v = 2^-24 / alpha: y 6 units of f32 + v |u + 1|, half a unit more in 16 bits; dup 6 units
//   + v |dy|; dgate 6 units + 2^-21 |dy (u + 1)|.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, or an alpha or limit that is not a
//   positive number.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

struct ClampedSwigluOptions {
  float alpha = 1.0f;
  float limit = 7.0f;
};

// y may be gate or up.
void clamped_swiglu_forward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up,
                            const ClampedSwigluOptions& options, const Buffer& y);

// Either gradient may be left out, and may be dy, gate or up; dup may be dgate if it is added to.
void clamped_swiglu_backward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up,
                             const ClampedSwigluOptions& options, const Buffer& dy,
                             const Backward::Target& dgate, const Backward::Target& dup);

Var clamped_swiglu(const Var& gate, const Var& up, const ClampedSwigluOptions& options);

}  // namespace mixtape
