#include "mixtape/nn/decoder_layer.h"

#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/rms_norm/rms_norm.h"

namespace mixtape {
namespace {

std::variant<AttentionLayer, DeltaNetLayer> make_mixer(TapeWeights& weights, const std::string& at,
                                                       const MixerSpec& spec, float eps) {
  using Mixer = std::variant<AttentionLayer, DeltaNetLayer>;
  return std::visit(
      Match{
          [&](const AttentionSpec& a) { return Mixer(AttentionLayer(weights, at + "self_attn.", a, eps)); },
          [&](const DeltaNetSpec& d) { return Mixer(DeltaNetLayer(weights, at + "linear_attn.", d, eps)); }},
      spec);
}

// The layer's own, of the kind that its mixer keeps.
template <class State>
State* own_state(LayerState* state) {
  if (state == nullptr) return nullptr;
  return std::holds_alternative<State>(*state) ? &std::get<State>(*state) : &state->emplace<State>();
}

std::variant<DenseMlp, SparseMlp> make_mlp(TapeWeights& weights, const std::string& at, const MlpSpec& spec) {
  using Mlp = std::variant<DenseMlp, SparseMlp>;
  return std::visit(Match{[&](const DenseMlpSpec& m) { return Mlp(DenseMlp(weights, at + "mlp.", m)); },
                          [&](const SparseMlpSpec& m) { return Mlp(SparseMlp(weights, at + "mlp.", m)); }},
                    spec);
}

}  // namespace

// The members are made in the order of the forward pass: so trainable tensors are listed.
DecoderLayer::DecoderLayer(TapeWeights& weights, const std::string& at, const LayerSpec& spec, float eps)
    : eps_(eps),
      spec_(spec),
      input_norm_(weights.vector(at + "input_layernorm.weight")),
      mixer_(make_mixer(weights, at, spec.mixer, eps)),
      post_attention_norm_(weights.vector(at + "post_attention_layernorm.weight")),
      mlp_(make_mlp(weights, at, spec.mlp)) {}

Var DecoderLayer::forward(const Var& x, const PassInputs& inputs, LayerState* state,
                          const std::function<void(const Buffer& offsets)>& on_offsets) const {
  const Var h = x + mix(rms_norm(x, input_norm_, eps_), inputs, state);  // [B, S, hidden]
  const Var normed = rms_norm(h, post_attention_norm_, eps_);            // [B, S, hidden]
  return h + std::visit(Match{[&](const DenseMlp& m) { return m.forward(normed); },
                              [&](const SparseMlp& m) { return m.forward(normed, on_offsets); }},
                        mlp_);
}

Var DecoderLayer::mix(const Var& x, const PassInputs& inputs, LayerState* state) const {
  return std::visit(
      Match{[&](const AttentionLayer& a) {
              const auto rope = static_cast<std::size_t>(std::get<AttentionSpec>(spec_.mixer).rope);
              return a.forward(x, inputs.positions, inputs.ropes[rope], own_state<AttentionState>(state));
            },
            [&](const DeltaNetLayer& d) { return d.forward(x, own_state<DeltaNetState>(state)); }},
      mixer_);
}

}  // namespace mixtape
