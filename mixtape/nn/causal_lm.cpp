#include "mixtape/nn/causal_lm.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace mixtape {
namespace {

// How attention layers rotate their heads in sequences of `length` tokens, by the config's tables.
std::vector<Rotation> rotations(const ModelConfig& config, std::int64_t length, const Device& device) {
  std::vector<Rotation> tables(config.ropes.size());
  for (const LayerSpec& layer : config.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || attention->rope == kNoRope) continue;
    const auto at = static_cast<std::size_t>(attention->rope);
    if (tables[at].frequencies) continue;
    const RopeConfig& rope = config.ropes[at];
    const std::vector<float> f = rope_inverse_frequencies(rope, attention->head_dim, length);
    tables[at] = {Buffer::from(device, Shape{std::ssize(f)}, f), static_cast<float>(rope.attention_factor)};
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
  constexpr std::int64_t kLongest = std::numeric_limits<std::int64_t>::max();
  short_ropes_ = rotations(config, 0, tape_.device());
  long_ropes_ = rotations(config, kLongest, tape_.device());
}

std::vector<Rotation> CausalLm::ropes(std::int64_t length) const {
  std::vector<Rotation> chosen = short_ropes_;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    config_.ropes[i].check_length(length);
    if (config_.ropes[i].is_long(length)) chosen[i] = long_ropes_[i];
  }
  return chosen;
}

bool CausalLm::starts_over(std::int64_t past, std::int64_t length) const {
  return past > 0 && std::any_of(config_.ropes.begin(), config_.ropes.end(), [&](const RopeConfig& rope) {
           return rope.is_long(past) != rope.is_long(length);
         });
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
    return layer.forward(x, {positions(0, x.shape()[1]), ropes(x.shape()[1]), {}}, nullptr, {});
  };
}

// Scaled here, so that whoever takes logits of what this gives need not know.
Var CausalLm::final_norm(const Var& x) const { return scaled(final_norm_(x), config_.logit_scale); }

Var CausalLm::hidden(const Buffer& ids, const ForwardOptions& options) const {
  Var x = embed(ids);  // [B, S, hidden]
  const std::int64_t past = options.state ? options.state->length : 0;
  const std::int64_t length = past + ids.shape()[1];
  require(!starts_over(past, length), "model: a sequence grows from ", past, " to ", length,
          " tokens, where its rotary frequencies change: expected a state without tokens");
  const PassInputs inputs{options.positions ? options.positions : positions(past, ids.shape()[1]),
                          ropes(length), options.lengths};
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
  if (options.state && !options.lengths) options.state->length += ids.shape()[1];
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

Buffer CausalLm::positions(std::int64_t begin, std::int64_t length) const {
  const auto known = positions_.find(length);
  if (begin == 0 && known != positions_.end()) return known->second;
  std::vector<std::uint32_t> values(static_cast<std::size_t>(length));
  std::iota(values.begin(), values.end(), static_cast<std::uint32_t>(begin));
  const Buffer made = Buffer::from(tape_.device(), {length}, values);
  if (begin == 0) positions_.emplace(length, made);
  return made;
}

}  // namespace mixtape
