// One layer of a decoder, composed from its description.
//   h = x + mixer(rms_norm(x));  out = h + mlp(rms_norm(h))
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "mixtape/nn/attention_layer.h"
#include "mixtape/nn/delta_net_layer.h"
#include "mixtape/nn/mlp_layer.h"

namespace mixtape {

// What a layer remembers of earlier tokens: one alternative for each kind of mixer.
using LayerState = std::variant<AttentionState, DeltaNetState>;

// What all layers of one pass share.
struct PassInputs {
  Buffer positions;           // u32 [B, S]
  std::vector<Buffer> ropes;  // f32 [rotary dims / 2], the config's tables
};

class DecoderLayer {
 public:
  // `at` is the path of the layer's tensors, "model.layers.0.".
  DecoderLayer(TapeWeights& weights, const std::string& at, const LayerSpec& spec, float eps);

  // x [B, S, hidden] -> [B, S, hidden]. The state may be null. on_offsets is SparseMlp's.
  Var forward(const Var& x, const PassInputs& inputs, LayerState* state,
              const std::function<void(const Buffer& offsets)>& on_offsets) const;

 private:
  Var mix(const Var& x, const PassInputs& inputs, LayerState* state) const;

  float eps_;
  LayerSpec spec_;
  Var input_norm_;
  std::variant<AttentionLayer, DeltaNetLayer> mixer_;
  Var post_attention_norm_;
  std::variant<DenseMlp, SparseMlp> mlp_;
};

}  // namespace mixtape
