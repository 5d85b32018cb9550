#include "mixtape/io/config_parts.h"

#include "mixtape/io/architecture.h"

namespace mixtape {

AttentionSpec read_attention(const ConfigReader& in, std::int64_t hidden_size) {
  AttentionSpec a;
  a.heads = in.size("num_attention_heads");
  a.kv_heads = in.size("num_key_value_heads", a.heads);
  if (a.heads % a.kv_heads != 0) {
    in.bad("num_attention_heads is ", a.heads, ", expected a multiple of num_key_value_heads ", a.kv_heads);
  }
  if (!in.has("head_dim") && hidden_size % a.heads != 0) {
    in.bad("has no head_dim and hidden_size ", hidden_size, " is no multiple of num_attention_heads ",
           a.heads);
  }
  a.head_dim = in.size("head_dim", hidden_size / a.heads);
  if (a.head_dim % 2 != 0) in.bad("head_dim is ", a.head_dim, ", expected an even number");
  return a;
}

std::vector<LayerSpec> equal_layers(const ConfigReader& in, const LayerSpec& layer) {
  return std::vector<LayerSpec>(static_cast<std::size_t>(in.size("num_hidden_layers")), layer);
}

std::vector<bool> sliding_layers(const ConfigReader& in, std::size_t layers, std::int64_t interval) {
  const nlohmann::json* types = in.find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != layers))
    in.bad("layer_types is ", types->dump(), ", expected one for each of ", layers, " layers");
  std::vector<bool> sliding;
  for (std::size_t i = 0; i < layers; ++i) {
    const bool by_interval = (static_cast<std::int64_t>(i) + 1) % interval != 0;
    const nlohmann::json type =
        types ? (*types)[i] : nlohmann::json(by_interval ? kSlidingAttention : kFullAttention);
    if (type != kFullAttention && type != kSlidingAttention) in.unsupported("layer type ", type.dump());
    sliding.push_back(type == kSlidingAttention);
  }
  return sliding;
}

void require_whole_heads(const ModelConfig& config, const std::string& where, const char* program) {
  const auto& a = std::get<AttentionSpec>(config.layers.front().mixer);
  if (a.heads * a.head_dim == config.hidden_size) return;
  fail(ErrorCode::not_supported, where, ": ", a.heads, " heads of ", a.head_dim, ", ", program,
       " wants heads that make up the hidden size ", config.hidden_size, " in ",
       config.architecture->model_type);
}

void write_qwen_positions(const ModelConfig& config, nlohmann::json& out) {
  constexpr std::int64_t kDefault = 32768;  // Hugging Face's
  if (config.max_position_embeddings == 0) out["max_position_embeddings"] = kDefault;
}

}  // namespace mixtape
