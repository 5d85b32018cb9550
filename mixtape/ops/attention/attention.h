// Scaled dot-product attention with grouped-query heads.
//   s[i,j] = scale * q[i].k[j]        p = softmax over the keys j that query i sees
//   y[i] = sum_j p[i,j] v[j]          ds = p * (dy.v - dy.y)
//   dq = scale * ds k                 dk = scale * ds^T q                 dv = p^T dy
//   with sinks the softmax's denominator has one more term, e^sink of the query's head, which weighs no value:
//   dsinks[h] = -sum_b,i e^(sinks[h] - lse[b,h,i]) dy.y
// Shapes: q, y, dq [B,Sq,Hq,D]; k, v, dk, dv [B,Sk,Hkv,D]; sinks, dsinks f32 [Hq]; lengths i32 [B]. D even, 8
//   to 256; f32, bf16, f16.
//   Sq <= Sk: the queries are the last Sq of the Sk positions. In forward k and v may be caches of more positions, of
//   which the first Sk are read: key_count says how many.
//   Query head h uses head h / (Hq/Hkv) of k and v; dk and dv sum over the query heads of a group.
// Query position p sees keys j <= p if causal, j > p - sliding_window if there is a window, and
//   j < lengths[b] if given. A query that sees no key gives y = 0 and zero gradients.
// Scores, weights and sums in f32, outputs rounded once. No more than a block of scores is kept.
// Saved for backward: q, k, v, y, sinks, lse f32 [B,Hq,Sq] (log of the denominator; -inf where no key is seen
//   and there is no sink).
// Deterministic: same bits for any thread count.
// Edges: NaN stays NaN; what is not finite in one row may also reach other rows of its sequence, even masked
//   ones.
// Accuracy, with A the largest scale * sum_d |q_d k_d| or |sink|, m = max(|q|,|k|), e = (4DA + Sk + 8)u, u = 2^-24:
//   y   1 unit + (2DA + Sk + 8)u max|v|;
//   dq  1 unit + m * scale * (unit/2 * max_i sum_d |dy y| + e * max_i sum_d |dy| max|v|);
//   dk  1 unit + m * scale * (the same) * the largest column sum of p;
//   dv  1 unit + e * max|dy| * that column sum;
//   dsinks  1 unit + (unit/2 * max_i sum_d |dy y| + (e + B Sq u) * max_i sum_d |dy| max|v|) * the largest sum of a
//       head's weights of its sink, unit that of y.
//   Matrix units of a card take weights in the 16 bits of q: (unit/2 + Sk u) max|v| more for y; in bf16 e
//   grows by unit for dq and dk, by unit/2 for dv.
// Errors: invalid_argument for dtypes, shapes or devices that disagree, or a window without
//   causal, or a key_count with gradients; index_out_of_range at wait for a length outside [0, Sk], whose sequence counts as length 0.
#pragma once

#include "mixtape/autograd/tape.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {

struct AttentionOptions {
  float scale = 1.0f;
  bool causal = true;
  std::int64_t sliding_window = 0;  // keys that a query sees, itself included; 0: all
  Buffer lengths = {};              // i32 [B], valid keys of each sequence; null: all
  Buffer sinks = {};                // f32 [Hq], null: none
  std::int64_t key_count =
      0;  // positions of k and v that are read, the first ones; 0: all. None with gradients
};

void attention_forward(CommandEncoder& encoder, const Buffer& q, const Buffer& k, const Buffer& v,
                       const AttentionOptions& options, const Buffer& y, const Buffer& lse);

// Gradients with a null buffer are not computed.
void attention_backward(CommandEncoder& encoder, const Buffer& q, const Buffer& k, const Buffer& v,
                        const AttentionOptions& options, const Buffer& y, const Buffer& lse, const Buffer& dy,
                        const Backward::Target& dq, const Backward::Target& dk, const Backward::Target& dv,
                        const Backward::Target& dsinks = {});

// Sinks that are given here take the place of the options', and get a gradient.
Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options,
              const Var& sinks = {});

}  // namespace mixtape
