#include "mixtape/nn/decoder_layer.h"

#include "mixtape/ops/elementwise/elementwise.h"

namespace mixtape {
namespace {

std::variant<AttentionLayer, DeltaNetLayer> make_mixer(TapeWeights& weights, const std::string& at,
                                                       const MixerSpec& spec, const NormSettings& norms) {
  using Mixer = std::variant<AttentionLayer, DeltaNetLayer>;
  return std::visit(Match{[&](const AttentionSpec& a) {
                            return Mixer(AttentionLayer(weights, at + "self_attn.", a, norms));
                          },
                          [&](const DeltaNetSpec& d) {
                            return Mixer(DeltaNetLayer(weights, at + "linear_attn.", d, norms.eps));
                          }},
                    spec);
}

// The layer's own, of the kind that its mixer keeps.
template <class State>
State* own_state(LayerState* state) {
  if (state == nullptr) return nullptr;
  return std::holds_alternative<State>(*state) ? &std::get<State>(*state) : &state->emplace<State>();
}

// The state moves on in the buffers that it has.
Var in_place(const DeltaNetLayer& layer, const Var& x, DeltaNetState& state, const Var& onto) {
  DeltaNetState next = state;
  const Var y = layer.forward(x, &next, onto);
  x.tape().encoder().copy(next.history.value(), state.history.value());
  x.tape().encoder().copy(next.state.value(), state.state.value());
  return y;
}

std::variant<DenseMlp, SparseMlp> make_mlp(TapeWeights& weights, const std::string& at, const MlpSpec& spec) {
  using Mlp = std::variant<DenseMlp, SparseMlp>;
  return std::visit(Match{[&](const DenseMlpSpec& m) { return Mlp(DenseMlp(weights, at + "mlp.", m)); },
                          [&](const SparseMlpSpec& m) { return Mlp(SparseMlp(weights, at + "mlp.", m)); }},
                    spec);
}

Norm make_norm(TapeWeights& weights, const std::string& at, const std::string& name,
               const NormSettings& norms) {
  return name.empty() ? Norm() : Norm(weights, at + name + ".weight", norms);
}

}  // namespace

// The members are made in the order of the forward pass: so trainable tensors are listed.
DecoderLayer::DecoderLayer(TapeWeights& weights, const std::string& at, const LayerSpec& spec,
                           const NormSettings& norms)
    : spec_(spec),
      before_mixer_(make_norm(weights, at, norm_names(spec.norms).before_mixer, norms)),
      mixer_(make_mixer(weights, at, spec.mixer, norms)),
      after_mixer_(make_norm(weights, at, norm_names(spec.norms).after_mixer, norms)),
      before_mlp_(make_norm(weights, at, norm_names(spec.norms).before_mlp, norms)),
      mlp_(make_mlp(weights, at, spec.mlp)),
      after_mlp_(make_norm(weights, at, norm_names(spec.norms).after_mlp, norms)) {}

Var DecoderLayer::forward(const Var& x, const PassInputs& inputs, LayerState* state,
                          const std::function<void(const Buffer& offsets)>& on_offsets) const {
  const Var h = plus(x, after_mixer_, [&](const Var& onto) {
    return mix(before_mixer_(x), inputs, state, onto);
  });                                 // [B, S, hidden]
  const Var normed = before_mlp_(h);  // [B, S, hidden]
  return plus(h, after_mlp_, [&](const Var& onto) {
    return std::visit(Match{[&](const DenseMlp& m) { return m.forward(normed, onto); },
                            [&](const SparseMlp& m) { return m.forward(normed, on_offsets, onto); }},
                      mlp_);
  });
}

// x + the scaled norm of part(null); where neither is there part(x), which adds to it itself.
template <class Part>
Var DecoderLayer::plus(const Var& x, const Norm& norm, const Part& part) const {
  if (norm.is_none() && spec_.residual_scale == 1.0) return part(x);
  return x + scaled(norm(part(Var())), spec_.residual_scale);
}

Var DecoderLayer::mix(const Var& x, const PassInputs& inputs, LayerState* state, const Var& onto) const {
  return std::visit(Match{[&](const AttentionLayer& a) {
                            const Rotation rope = inputs.rope_of(std::get<AttentionSpec>(spec_.mixer));
                            return a.forward(x, inputs.positions, rope, own_state<AttentionState>(state),
                                             inputs.lengths, onto);
                          },
                          [&](const DeltaNetLayer& d) {
                            DeltaNetState* own = own_state<DeltaNetState>(state);
                            return inputs.lengths ? in_place(d, x, *own, onto) : d.forward(x, own, onto);
                          }},
                    mixer_);
}

}  // namespace mixtape
