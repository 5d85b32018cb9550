// One layer of a decoder, composed from its description.
//   h = x + s after(mixer(before(x)));  out = h + s after(mlp(before(h)))
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "mixtape/nn/attention_layer.h"
#include "mixtape/nn/delta_net_layer.h"
#include "mixtape/nn/mlp_layer.h"
#include "mixtape/nn/norm.h"

namespace mixtape {

// What a layer remembers of earlier tokens: one alternative for each kind of mixer.
using LayerState = std::variant<AttentionState, DeltaNetState>;

// What all layers of one pass share.
struct PassInputs {
  Buffer positions;             // u32 [S]
  std::vector<Rotation> ropes;  // the config's tables
  // i32 [B]: how long sequences are with their one new position, which is positions[0]. States then stay where they are,
  // with the room that they have: for steps that are recorded. Null: states grow.
  Buffer lengths = {};

  Rotation rope_of(const AttentionSpec& a) const {
    return a.rope == kNoRope ? Rotation() : ropes[static_cast<std::size_t>(a.rope)];
  }
};

class DecoderLayer {
 public:
  // `at` is the path of the layer's tensors, "model.layers.0.".
  DecoderLayer(TapeWeights& weights, const std::string& at, const LayerSpec& spec, const NormSettings& norms);

  // x [B, S, hidden] -> [B, S, hidden]. The state may be null. on_offsets is SparseMlp's.
  Var forward(const Var& x, const PassInputs& inputs, LayerState* state,
              const std::function<void(const Buffer& offsets)>& on_offsets) const;

 private:
  Var mix(const Var& x, const PassInputs& inputs, LayerState* state, const Var& onto) const;
  template <class Part>
  Var plus(const Var& x, const Norm& norm, const Part& part) const;

  LayerSpec spec_;
  Norm before_mixer_;
  std::variant<AttentionLayer, DeltaNetLayer> mixer_;
  Norm after_mixer_, before_mlp_;
  std::variant<DenseMlp, SparseMlp> mlp_;
  Norm after_mlp_;
};

}  // namespace mixtape
