// Grouped-query attention as a layer of a decoder: projections, norms of heads, rotary positions, cache.
#pragma once

#include <string>

#include "mixtape/io/layer_spec.h"
#include "mixtape/nn/norm.h"
#include "mixtape/nn/tape_weights.h"

namespace mixtape {

// Keys and values so far, in caches that have room for more: those of passes without gradients.
struct AttentionState {
  Buffer keys, values;  // [B, room, Hkv, D]; null before the first pass
  std::int64_t length = 0;
};

// How the heads of one pass are rotated.
struct Rotation {
  Buffer frequencies;   // f32 [rotary dims / 2]; null: not at all
  float factor = 1.0f;  // of the rotated dimensions
};

class AttentionLayer {
 public:
  // `at` is the path of the layer's tensors, "model.layers.0.self_attn.".
  AttentionLayer(TapeWeights& weights, const std::string& at, const AttentionSpec& spec,
                 const NormSettings& norms);

  // x [B, S, hidden] -> [B, S, hidden]. positions u32 [S]. With a state, x follows what the state holds, and is
  // added to it; `lengths` is PassInputs'. The result is added to `onto`, if that is not null.
  Var forward(const Var& x, const Buffer& positions, const Rotation& rotation, AttentionState* state,
              const Buffer& lengths, const Var& onto) const;

 private:
  struct Projection {
    Matrix weight;
    Var bias;   // null where there is none
    Norm norm;  // over head_dim, or over all heads
  };
  Projection load(TapeWeights& weights, const std::string& at, const char* letter,
                  const NormSettings* norm) const;
  struct Flat {
    Var q, k, v;  // [B, S, heads * D]
  };
  Flat project(const Var& x) const;
  Var by_head(const Var& flat, std::int64_t count) const;
  Var turned(const Var& heads, const Norm& norm, const Buffer& positions, const Rotation& rotation) const;

  AttentionSpec spec_;
  Projection q_, k_, v_;  // fused: q_ is all of them
  Var sinks_;             // [Hq]; null where there are none
  Matrix output_;
  Var output_bias_;
};

}  // namespace mixtape
