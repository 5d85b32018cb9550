// The gated delta rule: a linear attention whose state forgets, and is corrected towards the value at each key.
// For each value head, S its state [Dv,Dk], u [Dv]:
//   S = exp(g[t]) S        u = beta[t] (v[t] - S k[t])        S = S + u k[t]^T        y[t] = scale * S q[t]
//   backward, from the last t on, dS of the state after t, Sd = exp(g) S' of the state S' before it:
//   dq = scale S^T dy            dS += scale dy q^T       du = dS k           dv = beta du
//   dbeta = du.(v - Sd k)        dk = dS^T u - Sd^T dv    dS -= dv k^T        dg = <dS, Sd>       dS' = exp(g) dS
// Shapes: q, k, dq, dk [B,S,Hk,Dk]; v, y, dv, dy [B,S,Hv,Dv], Hv a multiple of Hk: value head h goes with head
//   h / (Hv/Hk) of q and k, whose gradients sum over them; Dk up to 256. f32, bf16, f16. g, beta, dg, dbeta f32
//   [B,S,Hv]; g is the logarithm of the decay. initial, dinitial, final_state, dfinal f32 [B,Hv,Dv,Dk].
// Positions are worked on in chunks of 64: with D[t,j] = exp(g[j+1] + ... + g[t]), D[t] the same from the chunk's
//   first position on, and S the state before the chunk,
//   (I + A) U = beta (V - D[t] K S^T), A[t,j] = beta[t] D[t,j] k[t].k[j] for j < t, and all else are products of
//   matrices. Without an initial state it is 0.
// Saved for backward: q, k, v, g, beta, and the states before each chunk, f32 [B,Hv,ceil(S/64),Dv,Dk].
// Deterministic: everything is summed in an order that follows from the shape.
// Edges: what is not finite at a position may reach every position of its chunk and all that follow. g of -inf
//   gives NaN: a decay of 0 is any g below -104.
// Accuracy (u = 2^-24), where the state does not grow (g <= 0, 0 <= beta |k|^2 <= 2), so that the errors of
//   positions add up: with n = S + Dk + Dv + 192, y and every gradient 1 unit + n u times the sum of the magnitudes
//   of the terms that it is made of by the formulas above; dg those of its whole chunk.
//   On matrix units (bf16, Dk and Dv multiples of 8 up to 128) what goes from chunk to chunk is multiplied in
//   two bf16 parts, which adds (4 + S/64) 2^-16 of the magnitudes; the gradients of q, k, g and beta multiply states,
//   u and their gradients rounded to bf16, up to four of them: 2^-7 of the magnitudes.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, an empty head, a Dk above 256, or a
//   scale that is not finite.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

struct DeltaRuleInputs {
  Buffer q, k, v, g, beta;
  Buffer initial = {};  // may be null
  float scale = 1.0f;
};

// [B,Hv,ceil(S/64),Dv,Dk]; of q and v as above.
Shape gated_delta_rule_states(const Shape& q, const Shape& v);

// states may be null: nothing is kept for a backward.
void gated_delta_rule_forward(CommandEncoder& encoder, const DeltaRuleInputs& in, const Buffer& y,
                              const Buffer& final_state, const Buffer& states);

// A target with a null buffer is not computed.
struct DeltaRuleTargets {
  Backward::Target q, k, v, g, beta, initial;
};

// dfinal may be null: zeros.
void gated_delta_rule_backward(CommandEncoder& encoder, const DeltaRuleInputs& in, const Buffer& states,
                               const Buffer& dy, const Buffer& dfinal, const DeltaRuleTargets& out);

struct DeltaRule {
  Var y;
  Buffer final_state;  // for the tokens that follow; no gradient comes back through it
};

// initial may be null.
DeltaRule gated_delta_rule(const Var& q, const Var& k, const Var& v, const Var& g, const Var& beta,
                           const Var& initial, float scale);

}  // namespace mixtape
