// The gated half of a SwiGLU feed-forward.
//   y = gate s(gate) up,  s(x) = 1 / (1 + e^-x)
//   dgate = dy up s(gate) (1 + gate s(-gate))        dup = dy gate s(gate)
// Shapes: gate, up, y, dy, dgate, dup equal, rank 1 or more. f32, bf16, f16; computed in f32, rounded once.
// Saved for backward: gate and up.
// Deterministic; both gradients come from one pass.
// Edges: NaN goes through; silu(-inf) is 0 with gradient 0, silu(+inf) is +inf with gradient 1.
// Accuracy: y 4 units of f32, half a unit more in 16 bits; dup 4 units; dgate 5 units + 2^-21 |dy up| (where
//   1 + gate s(-gate) cancels). On GPUs in 16 bits |gate| / 2 + 2 units of f32 more, which the half unit hides.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// y may be gate or up.
void silu_mul_forward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up, const Buffer& y);

// Either gradient may be left out, and may be dy, gate or up; dup may be dgate if it is added to.
void silu_mul_backward(CommandEncoder& encoder, const Buffer& gate, const Buffer& up, const Buffer& dy,
                       const Backward::Target& dgate, const Backward::Target& dup);

Var silu_mul(const Var& gate, const Var& up);

}  // namespace mixtape
