#include "mixtape/nn/tensor_list.h"

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

class Lister {
 public:
  explicit Lister(const ModelConfig& config) : c_(config) {}

  std::vector<ModelTensor> list() {
    add("model.embed_tokens.weight", {c_.vocab_size, c_.hidden_size}, TensorKind::embedding);
    for (std::int64_t i = 0; i < c_.num_hidden_layers; ++i) layer(i);
    vector("model.norm.weight", c_.hidden_size);
    if (!c_.tie_word_embeddings) add("lm_head.weight", {c_.vocab_size, c_.hidden_size}, TensorKind::matrix);
    return std::move(list_);
  }

 private:
  void layer(std::int64_t i) {
    const std::string layer = str("model.layers.", i, ".");
    vector(layer + "input_layernorm.weight", c_.hidden_size);
    attention(layer + "self_attn.");
    vector(layer + "post_attention_layernorm.weight", c_.hidden_size);
    if (c_.is_sparse(i)) {
      experts(layer + "mlp.");
    } else {
      mlp(layer + "mlp.");
    }
  }

  void attention(const std::string& at) {
    const std::int64_t q = c_.num_attention_heads * c_.head_dim;
    const std::int64_t kv = c_.num_key_value_heads * c_.head_dim;
    linear(at + "q_proj", q, c_.hidden_size, c_.attention_bias);
    linear(at + "k_proj", kv, c_.hidden_size, c_.attention_bias);
    linear(at + "v_proj", kv, c_.hidden_size, c_.attention_bias);
    if (c_.architecture != Architecture::llama) {
      vector(at + "q_norm.weight", c_.head_dim);
      vector(at + "k_norm.weight", c_.head_dim);
    }
    linear(at + "o_proj", c_.hidden_size, q, c_.attention_bias);
  }

  void mlp(const std::string& at) {
    linear(at + "gate_proj", c_.intermediate_size, c_.hidden_size, c_.mlp_bias);
    linear(at + "up_proj", c_.intermediate_size, c_.hidden_size, c_.mlp_bias);
    linear(at + "down_proj", c_.hidden_size, c_.intermediate_size, c_.mlp_bias);
  }

  void experts(const std::string& at) {
    const std::int64_t e = c_.num_experts, f = c_.moe_intermediate_size, d = c_.hidden_size;
    add(at + "gate.weight", {e, d}, TensorKind::router);
    add(at + "switch_mlp.gate_proj.weight", {e, f, d}, TensorKind::matrix);
    add(at + "switch_mlp.up_proj.weight", {e, f, d}, TensorKind::matrix);
    add(at + "switch_mlp.down_proj.weight", {e, d, f}, TensorKind::matrix);
  }

  void linear(const std::string& path, std::int64_t out, std::int64_t in, bool bias) {
    add(path + ".weight", {out, in}, TensorKind::matrix);
    if (bias) vector(path + ".bias", out);
  }
  void vector(const std::string& name, std::int64_t size) { add(name, {size}, TensorKind::vector); }
  void add(const std::string& name, const Shape& shape, TensorKind kind) {
    list_.push_back({name, shape, kind});
  }

  const ModelConfig& c_;
  std::vector<ModelTensor> list_;
};

}  // namespace

std::vector<ModelTensor> tensor_list(const ModelConfig& config) { return Lister(config).list(); }

std::string module_path(const std::string& tensor_name) {
  return tensor_name.substr(0, tensor_name.rfind('.'));
}

}  // namespace mixtape
