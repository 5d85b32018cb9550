// Routing of tokens to experts: which experts a token takes, where its rows go, and how they come back.
//   moe_route    p = softmax(logits) over all experts; indices[t,j] = the k largest, as top_k ranks them
//                weights[t,j] = p[t,indices[t,j]], with normalise divided by their sum over j
//     dlogits[t,e] = p * (g - sum_j p g), where g[t,indices[t,j]] = dweights[t,j] and 0 elsewhere;
//     with normalise w * (dweights - sum_j w dweights) for the chosen experts and exactly 0 for the others
//   moe_plan     slot s = t*k + j; `order` lists the slots by expert, then by number; rows[i] = order[i] / k;
//                order[inverse[s]] = s; expert e has the places offsets[e] <= i < offsets[e+1]; the expert of place i
//                is experts[i]
//   moe_dispatch y[i] = x[rows[i]]: each token's row once per chosen expert, sorted by expert
//     dx[t] = sum_j dy[inverse[t*k+j]], in increasing j
//   moe_combine  y[t] = sum_j weights[t,j] * x[inverse[t*k+j]], in increasing j (+ addend[t]); daddend = dy
//     dx[inverse[t*k+j]] = weights[t,j] * dy[t]        dweights[t,j] = sum_d x[inverse[t*k+j],d] * dy[t,d]
// Shapes: logits, dlogits [T,E], f32, bf16 or f16; weights, dweights f32 [T,k], indices u32 [T,k],
//   1 <= k <= E; order, rows, inverse, experts u32 [T*k], offsets u32 [E+1].
//   moe_dispatch: x, dx [T,D], y, dy [T*k,D]; moe_combine: x, dx [T*k,D], y, dy, addend [T,D]; f32, bf16 or f16.
// The ranking is by logits: of probabilities that round to the same number the larger logit comes first.
// Saved for backward: moe_route logits, indices and weights; moe_dispatch inverse; moe_combine x, weights and
//   inverse.
// Deterministic.
// Edges: a NaN in a row of logits makes the row's weights NaN. With k = 1 and normalise the weight is 1 and
//   the gradient truly 0.
// Accuracy (u = 2^-24): weights (8 + 2 |logit - max| + E/16) u relative;
//   dlogits 1 unit + (10 + 2 |logit - max| + E/16 + k) u * p * max |dweights|;
//   y half a unit + k u (sum |weights*x| + |addend|), moe_dispatch's dx likewise; dx 1 unit;
//   dweights (4 + D/32) u sum |x*dy|.
// Errors: invalid_argument for dtypes, ranks, shapes or devices that disagree, k outside
//   1 .. E, or 2^32 slots and more; index_out_of_range at wait for an expert of moe_plan outside 0 .. E-1
//   (its slot then follows those of all experts) and for a place of `inverse` outside x (it counts as a row
//   of 0).
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

// k is the last dimension of `weights`.
void moe_route_forward(CommandEncoder& encoder, const Buffer& logits, const Buffer& weights,
                       const Buffer& indices, bool normalise);

void moe_route_backward(CommandEncoder& encoder, const Buffer& logits, const Buffer& weights,
                        const Buffer& indices, const Buffer& dweights, const Buffer& dlogits, bool normalise,
                        Accumulate accumulate = Accumulate::no);

struct MoeRoute {
  Var weights;
  Buffer indices;
};
MoeRoute moe_route(const Var& logits, std::int64_t k, bool normalise);

struct MoePlan {
  Buffer order, rows, inverse, offsets, experts;
};
MoePlan moe_plan(CommandEncoder& encoder, const Buffer& indices, std::int64_t n_experts);

// x [T,D] -> [T*k,D].
Var moe_dispatch(const Var& x, const MoePlan& plan);

// A null addend: none.
void moe_combine_forward(CommandEncoder& encoder, const Buffer& x, const Buffer& weights,
                         const Buffer& inverse, const Buffer& y, const Buffer& addend = Buffer());

// A target with a null buffer is not computed. `inverse` names every row of x once.
void moe_combine_backward(CommandEncoder& encoder, const Buffer& x, const Buffer& weights,
                          const Buffer& inverse, const Buffer& dy, const Backward::Target& dx,
                          const Backward::Target& dweights);

Var moe_combine(const Var& x, const Var& weights, const MoePlan& plan, const Var& addend = Var());

}  // namespace mixtape
