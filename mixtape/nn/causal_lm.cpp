#include "mixtape/nn/causal_lm.h"

namespace mixtape {
namespace {

// The table of frequencies that attention layers of this head size rotate by.
std::vector<Buffer> rope_tables(const ModelConfig& config, const Device& device) {
  std::vector<Buffer> tables(config.ropes.size());
  for (const LayerSpec& layer : config.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || attention->rope == kNoRope) continue;
    const auto at = static_cast<std::size_t>(attention->rope);
    if (tables[at]) continue;
    const std::vector<float> f = rope_inverse_frequencies(config.ropes[at], attention->head_dim);
    tables[at] = Buffer::from(device, Shape{std::ssize(f)}, f);
  }
  return tables;
}

}  // namespace

CausalLm::CausalLm(const ModelConfig& config, TapeWeights& weights, DType dtype)
    : config_(config), dtype_(dtype), weights_(weights), tape_(weights.tape()) {
  embedding_ = weights.matrix("model.embed_tokens");
  for (std::int64_t i = 0; i < std::ssize(config.layers) && !weights.is_streamed(); ++i)
    layers_.push_back(load_layer(i));
  final_norm_ = Norm(weights, "model.norm.weight", norms());
  head_ = config.tie_word_embeddings ? embedding_ : weights.matrix("lm_head");
  ropes_ = rope_tables(config, tape_.device());
}

DecoderLayer CausalLm::load_layer(std::int64_t i) const {
  return DecoderLayer(weights_, str("model.layers.", i, "."), config_.layers[static_cast<std::size_t>(i)],
                      norms());
}

Var CausalLm::embed(const Buffer& ids) const {
  require(ids && ids.dtype() == DType::u32 && ids.shape().rank() == 2, "model: ids is ", ids,
          ", expected u32 [B,S]");
  return scaled(lookup(embedding_, ids, dtype_), config_.embedding_scale);
}

std::function<Var(const Var& x)> CausalLm::layer(std::int64_t i) const {
  return [this, layer = is_streamed() ? load_layer(i) : layers_[static_cast<std::size_t>(i)]](const Var& x) {
    return layer.forward(x, {positions(x.shape()[0], 0, x.shape()[1]), ropes_}, nullptr, {});
  };
}

// Scaled here, so that whoever takes logits of what this gives need not know.
Var CausalLm::final_norm(const Var& x) const { return scaled(final_norm_(x), config_.logit_scale); }

Var CausalLm::hidden(const Buffer& ids, const ForwardOptions& options) const {
  Var x = embed(ids);  // [B, S, hidden]
  const std::int64_t past = options.state ? options.state->length : 0;
  const PassInputs inputs{positions(ids.shape()[0], past, ids.shape()[1]), ropes_};
  if (options.state) options.state->layers.resize(config_.layers.size());
  for (std::int64_t i = 0; i < std::ssize(config_.layers); ++i) {
    if (options.checkpoint_blocks) {
      x = tape_.checkpoint({x}, [this, i, inputs, options](const std::vector<Var>& in) {
        return run_layer(i, in[0], inputs, options);
      });
    } else {
      x = run_layer(i, x, inputs, options);
    }
  }
  if (options.state) options.state->length += ids.shape()[1];
  return final_norm(x);
}

Var CausalLm::run_layer(std::int64_t i, const Var& x, const PassInputs& inputs,
                        const ForwardOptions& options) const {
  const auto at = static_cast<std::size_t>(i);
  LayerState* state = options.state ? &options.state->layers[at] : nullptr;
  std::function<void(const Buffer&)> on_offsets;
  if (options.on_routing) on_offsets = [&](const Buffer& offsets) { options.on_routing(i, offsets); };
  if (is_streamed()) return load_layer(i).forward(x, inputs, state, on_offsets);
  return layers_[at].forward(x, inputs, state, on_offsets);
}

Var CausalLm::logits(const Var& hidden, DType dtype) const { return linear(hidden, head_, dtype); }

Buffer CausalLm::positions(std::int64_t batch, std::int64_t begin, std::int64_t length) const {
  const auto known = positions_.find({batch, length});
  if (begin == 0 && known != positions_.end()) return known->second;
  std::vector<std::uint32_t> values;
  for (std::int64_t i = 0; i < batch * length; ++i)
    values.push_back(static_cast<std::uint32_t>(begin + i % length));
  const Buffer made = Buffer::from(tape_.device(), {batch, length}, values);
  if (begin == 0) positions_.emplace(std::pair(batch, length), made);
  return made;
}

}  // namespace mixtape
