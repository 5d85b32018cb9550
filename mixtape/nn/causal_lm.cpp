#include "mixtape/nn/causal_lm.h"

#include <cmath>

#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/embedding/embedding.h"
#include "mixtape/ops/layout/layout.h"
#include "mixtape/ops/moe_route/moe_route.h"
#include "mixtape/ops/rms_norm/rms_norm.h"
#include "mixtape/ops/rope/rope.h"
#include "mixtape/ops/silu_mul/silu_mul.h"

namespace mixtape {
namespace {

Var bias_of(TapeWeights& weights, const std::string& path) {
  const std::string name = path + ".bias";
  return weights.has_vector(name) ? weights.vector(name) : Var();
}

Attention load_attention(TapeWeights& weights, const std::string& at) {
  Attention a;
  a.q_proj = weights.matrix(at + "q_proj");
  a.k_proj = weights.matrix(at + "k_proj");
  a.v_proj = weights.matrix(at + "v_proj");
  a.o_proj = weights.matrix(at + "o_proj");
  a.q_bias = bias_of(weights, at + "q_proj");
  a.k_bias = bias_of(weights, at + "k_proj");
  a.v_bias = bias_of(weights, at + "v_proj");
  a.o_bias = bias_of(weights, at + "o_proj");
  if (weights.has_vector(at + "q_norm.weight")) {
    a.q_norm = weights.vector(at + "q_norm.weight");
    a.k_norm = weights.vector(at + "k_norm.weight");
  }
  return a;
}

DenseMlp load_dense(TapeWeights& weights, const std::string& at) {
  return {weights.matrix(at + "gate_proj"), weights.matrix(at + "up_proj"),
          weights.matrix(at + "down_proj"), bias_of(weights, at + "gate_proj"),
          bias_of(weights, at + "up_proj"), bias_of(weights, at + "down_proj")};
}

SparseMlp load_sparse(TapeWeights& weights, const std::string& at) {
  return {weights.matrix(at + "gate"), weights.matrix(at + "switch_mlp.gate_proj"),
          weights.matrix(at + "switch_mlp.up_proj"), weights.matrix(at + "switch_mlp.down_proj")};
}

Block load_block(TapeWeights& weights, const ModelConfig& config, std::int64_t i) {
  const std::string at = str("model.layers.", i, ".");
  Block block;
  block.input_norm = weights.vector(at + "input_layernorm.weight");
  block.attention = load_attention(weights, at + "self_attn.");
  block.post_attention_norm = weights.vector(at + "post_attention_layernorm.weight");
  block.is_sparse = config.is_sparse(i);
  if (block.is_sparse) {
    block.sparse = load_sparse(weights, at + "mlp.");
  } else {
    block.dense = load_dense(weights, at + "mlp.");
  }
  return block;
}

Var add_bias(const Var& x, const Var& bias) {
  if (!bias.value()) return x;
  return x + (bias.dtype() == x.dtype() ? bias : cast(bias, x.dtype()));
}

Var append(const Var& past, const Var& now) { return past.value() ? concat({past, now}, 1) : now; }

}  // namespace

CausalLm::CausalLm(const ModelConfig& config, TapeWeights& weights, DType dtype)
    : config_(config), dtype_(dtype), weights_(weights), tape_(weights.tape()) {
  embedding_ = weights.matrix("model.embed_tokens");
  for (std::int64_t i = 0; i < config.num_hidden_layers && !weights.is_streamed(); ++i)
    blocks_.push_back(load_block(weights, config, i));
  final_norm_ = weights.vector("model.norm.weight");
  head_ = config.tie_word_embeddings ? embedding_ : weights.matrix("lm_head");
  const std::vector<float> frequencies = rope_inverse_frequencies(config);
  inverse_frequencies_ =
      Buffer::from(tape_.device(), Shape{static_cast<std::int64_t>(frequencies.size())}, frequencies);
}

Var CausalLm::hidden(const Buffer& ids, const ForwardOptions& options) const {
  require(ids && ids.dtype() == DType::u32 && ids.shape().rank() == 2, "model: ids is ", ids,
          ", expected u32 [B,S]");
  const std::int64_t past = options.cache ? options.cache->length() : 0;
  const Buffer at = positions(ids.shape()[0], past, ids.shape()[1]);
  if (options.cache) {
    options.cache->keys.resize(static_cast<std::size_t>(config_.num_hidden_layers));
    options.cache->values.resize(static_cast<std::size_t>(config_.num_hidden_layers));
  }
  Var x = lookup(embedding_, ids, dtype_);
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    if (options.checkpoint_blocks) {
      x = tape_.checkpoint({x}, [this, layer, at, options](const std::vector<Var>& in) {
        return block(block_at(layer), layer, in[0], at, options);
      });
    } else {
      x = block(block_at(layer), layer, x, at, options);
    }
  }
  return rms_norm(x, final_norm_, eps());
}

Block CausalLm::block_at(std::int64_t layer) const {
  return weights_.is_streamed() ? load_block(weights_, config_, layer)
                                : blocks_[static_cast<std::size_t>(layer)];
}

Var CausalLm::logits(const Var& hidden, DType dtype) const { return linear(hidden, head_, dtype); }

Var CausalLm::block(const Block& block, std::int64_t layer, const Var& x, const Buffer& positions,
                    const ForwardOptions& options) const {
  const float eps = this->eps();
  const Var h = x + attention(block, layer, rms_norm(x, block.input_norm, eps), positions, options.cache);
  return h + mlp(block, layer, rms_norm(h, block.post_attention_norm, eps), options);
}

Var CausalLm::attention(const Block& block, std::int64_t layer, const Var& x, const Buffer& positions,
                        KeyValueCache* cache) const {
  const Attention& a = block.attention;
  const std::int64_t batch = x.shape()[0], length = x.shape()[1], head_dim = config_.head_dim;
  const auto heads = [&](const Matrix& w, const Var& bias, const Var& norm, std::int64_t count) {
    const Var y = reshape(add_bias(linear(x, w), bias), {batch, length, count, head_dim});
    return norm.value() ? rms_norm(y, norm, eps()) : y;
  };
  const Var q =
      rope(heads(a.q_proj, a.q_bias, a.q_norm, config_.num_attention_heads), positions, inverse_frequencies_);
  Var k =
      rope(heads(a.k_proj, a.k_bias, a.k_norm, config_.num_key_value_heads), positions, inverse_frequencies_);
  Var v = heads(a.v_proj, a.v_bias, Var(), config_.num_key_value_heads);
  if (cache) {
    const auto i = static_cast<std::size_t>(layer);
    k = cache->keys[i] = append(cache->keys[i], k);
    v = cache->values[i] = append(cache->values[i], v);
  }
  const Var y =
      mixtape::attention(q, k, v, {.scale = 1.0f / std::sqrt(static_cast<float>(head_dim)), .causal = true});
  return add_bias(linear(reshape(y, {batch, length, config_.num_attention_heads * head_dim}), a.o_proj),
                  a.o_bias);
}

Var CausalLm::mlp(const Block& block, std::int64_t layer, const Var& x, const ForwardOptions& options) const {
  if (block.is_sparse) return sparse_mlp(block.sparse, layer, x, options);
  const DenseMlp& m = block.dense;
  const Var gate = add_bias(linear(x, m.gate_proj), m.gate_bias);
  const Var up = add_bias(linear(x, m.up_proj), m.up_bias);
  return add_bias(linear(silu_mul(gate, up), m.down_proj), m.down_bias);
}

// y = sum_k score_k * expert_k(x): rows are copied once per chosen expert, sorted by expert, and added up
// again.
Var CausalLm::sparse_mlp(const SparseMlp& m, std::int64_t layer, const Var& x,
                         const ForwardOptions& options) const {
  const Var rows = reshape(x, {x.shape().rows(), x.shape().cols()});
  const MoeRoute route =
      moe_route(linear(rows, m.router, DType::f32), config_.num_experts_per_tok, config_.norm_topk_prob);
  const MoePlan plan = moe_plan(tape_.encoder(), route.indices, config_.num_experts);
  if (options.on_routing) options.on_routing(layer, plan.offsets);
  const Var sorted = moe_dispatch(rows, plan);
  const Var inner = silu_mul(grouped_linear(sorted, m.gate_proj, plan.offsets),
                             grouped_linear(sorted, m.up_proj, plan.offsets));
  return reshape(moe_combine(grouped_linear(inner, m.down_proj, plan.offsets), route.weights, plan),
                 x.shape());
}

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
