// A decoder, composed layer by layer from its config.
//   x = embedding(ids) * embedding_scale;  each layer;  logits = head(rms_norm(x) * logit_scale)
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "mixtape/nn/decoder_layer.h"

namespace mixtape {

// What was seen so far, for generation. An empty one is filled by the first pass, every pass writes to the same caches:
// there is one owner.
struct GenerationState {
  GenerationState() = default;
  GenerationState(GenerationState&&) = default;
  GenerationState& operator=(GenerationState&&) = default;
  std::int64_t length = 0;  // tokens seen
  std::vector<LayerState> layers;
};

struct ForwardOptions {
  GenerationState* state = nullptr;
  // Of a state's next position, PassInputs': the state's length then stays. Null: that follows from the state.
  Buffer positions = {}, lengths = {};
  bool checkpoint_blocks = false;  // recompute each layer in the backward pass
  // Called with each sparse layer's expert offsets, u32 [E+1] on the device.
  std::function<void(std::int64_t layer, const Buffer& offsets)> on_routing = {};
};

class CausalLm {
 public:
  // Activations are computed in `dtype`: f32 or bf16.
  // Streamed weights are loaded layer by layer in each pass, but for the embedding and the output layer.
  CausalLm(const ModelConfig& config, TapeWeights& weights, DType dtype);
  bool is_streamed() const { return weights_.is_streamed(); }

  const ModelConfig& config() const { return config_; }
  TapeWeights& weights() const { return weights_; }
  // ids u32 [B, S] -> final normed activations [B, S, hidden]. With a state, ids follow what it holds; throws
  // invalid_argument where starts_over() says that they cannot, and not_supported for a sequence that is too long for
  // its rotary frequencies.
  Var hidden(const Buffer& ids, const ForwardOptions& options = {}) const;
  // Whether a sequence that grows from `past` to `length` tokens has to be computed anew, because frequencies of all its
  // positions change (longrope).
  bool starts_over(std::int64_t past, std::int64_t length) const;
  // hidden() in parts, for callers that hold all rows between two layers; x [B, S, hidden]. A layer's weights are
  // loaded once.
  Var embed(const Buffer& ids) const;
  std::function<Var(const Var& x)> layer(std::int64_t i) const;
  Var final_norm(const Var& x) const;
  // hidden [..., hidden] -> logits [..., V].
  Var logits(const Var& hidden, DType dtype = DType::f32) const;

 private:
  DecoderLayer load_layer(std::int64_t i) const;
  Var run_layer(std::int64_t i, const Var& x, const PassInputs& inputs, const ForwardOptions& options) const;
  NormSettings norms() const { return {static_cast<float>(config_.rms_norm_eps), config_.norm_offset}; }
  std::vector<Rotation> ropes(std::int64_t length) const;
  Buffer positions(std::int64_t begin, std::int64_t length) const;  // u32 [S], the same for all sequences

  ModelConfig config_;
  DType dtype_;
  TapeWeights& weights_;
  Tape& tape_;
  Matrix embedding_, head_;
  std::vector<DecoderLayer> layers_;  // none where the weights are streamed
  Norm final_norm_;
  std::vector<Rotation> short_ropes_, long_ropes_;
  mutable std::map<std::int64_t, Buffer> positions_;  // from 0 on, by their number
};

}  // namespace mixtape
