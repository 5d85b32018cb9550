#include "mixtape/nn/attention_layer.h"

#include <cmath>

#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/ops/rope/rope.h"

namespace mixtape {
namespace {

Var append(const Var& past, const Var& now) { return past.value() ? concat({past, now}, 1) : now; }

}  // namespace

AttentionLayer::AttentionLayer(TapeWeights& weights, const std::string& at, const AttentionSpec& spec,
                               float eps)
    : spec_(spec),
      eps_(eps),
      q_(load(weights, at, "q", spec.qk_norms)),
      k_(load(weights, at, "k", spec.qk_norms)),
      v_(load(weights, at, "v", false)),
      output_(weights.matrix(at + "o_proj")) {
  if (spec.output_bias) output_bias_ = weights.vector(at + "o_proj.bias");
}

AttentionLayer::Projection AttentionLayer::load(TapeWeights& weights, const std::string& at,
                                                const char* letter, bool norm) const {
  const std::string path = at + letter + "_proj";
  return {weights.matrix(path), spec_.qkv_bias ? weights.vector(path + ".bias") : Var(),
          norm ? weights.vector(at + letter + "_norm.weight") : Var()};
}

Var AttentionLayer::heads(const Var& x, const Projection& p, std::int64_t count) const {
  return reshape(add_bias(linear(x, p.weight), p.bias),
                 {x.shape()[0], x.shape()[1], count, -1});  // [B, S, count, D], or 2D with a gate
}

Var AttentionLayer::normed(const Var& heads, const Projection& p) const {
  return p.norm.value() ? rms_norm(heads, p.norm, eps_) : heads;
}

Var AttentionLayer::forward(const Var& x, const Buffer& positions, const Buffer& frequencies,
                            AttentionState* state) const {
  const std::int64_t dim = spec_.head_dim;
  Var q = heads(x, q_, spec_.heads), gate;
  if (spec_.output_gate) {
    gate = slice(q, -1, dim, 2 * dim);  // [B, S, Hq, D]
    q = slice(q, -1, 0, dim);
  }
  q = rope(normed(q, q_), positions, frequencies);                                 // [B, S, Hq, D]
  Var k = rope(normed(heads(x, k_, spec_.kv_heads), k_), positions, frequencies);  // [B, S, Hkv, D]
  Var v = heads(x, v_, spec_.kv_heads);                                            // [B, S, Hkv, D]
  if (state) {
    k = state->keys = append(state->keys, k);      // [B, past + S, Hkv, D]
    v = state->values = append(state->values, v);  // [B, past + S, Hkv, D]
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  Var y =
      attention(q, k, v, {.scale = scale, .causal = true, .sliding_window = spec_.window});  // [B, S, Hq, D]
  if (spec_.output_gate) y *= sigmoid(gate);
  const Var flat = reshape(y, {x.shape()[0], x.shape()[1], spec_.heads * spec_.head_dim});
  return add_bias(linear(flat, output_), output_bias_);  // [B, S, hidden]
}

}  // namespace mixtape
