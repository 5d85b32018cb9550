// Grouped-query attention as a layer of a decoder: projections, norms of heads, rotary positions, cache.
#pragma once

#include <string>

#include "mixtape/io/layer_spec.h"
#include "mixtape/nn/tape_weights.h"

namespace mixtape {

// Keys and values of the tokens seen so far, [B, S, Hkv, D]; null before the first.
struct AttentionState {
  Var keys, values;
};

class AttentionLayer {
 public:
  // `at` is the path of the layer's tensors, "model.layers.0.self_attn.".
  AttentionLayer(TapeWeights& weights, const std::string& at, const AttentionSpec& spec, float eps);

  // x [B, S, hidden] -> [B, S, hidden]. positions u32 [B, S]; frequencies f32 [rotary dims / 2]. With a
  // state, x follows what the state holds, and is added to it.
  Var forward(const Var& x, const Buffer& positions, const Buffer& frequencies, AttentionState* state) const;

 private:
  struct Projection {
    Matrix weight;
    Var bias;  // null where there is none
    Var norm;  // over head_dim; null where there is none
  };
  Projection load(TapeWeights& weights, const std::string& at, const char* letter, bool norm) const;
  Var heads(const Var& x, const Projection& p, std::int64_t count) const;
  Var normed(const Var& heads, const Projection& p) const;

  AttentionSpec spec_;
  float eps_;
  Projection q_, k_, v_;
  Matrix output_;
  Var output_bias_;
};

}  // namespace mixtape
