// qwen3_next: gated delta nets, gated attention in every few layers, experts with a shared one.
#include "mixtape/io/architectures/qwen3_next.h"

#include "mixtape/io/architecture.h"
#include "mixtape/io/architectures/qwen3.h"
#include "mixtape/io/architectures/qwen3_moe.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr std::int64_t kUsualInterval = 4;
constexpr std::int64_t kMostTaps = 16;  // causal_conv1d's

constexpr GgufKey kSharedWidth = {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"};
constexpr const char *kInterval = "full_attention_interval", *kValues = "linear_values";

DeltaNetSpec read_delta_net(const ConfigReader& in, bool fused) {
  DeltaNetSpec d;
  d.fused = fused;
  d.key_heads = in.size("linear_num_key_heads");
  d.value_heads = in.size("linear_num_value_heads");
  if (d.value_heads % d.key_heads != 0) {
    in.bad("linear_num_value_heads is ", d.value_heads, ", expected a multiple of linear_num_key_heads ",
           d.key_heads);
  }
  d.key_dim = in.range("linear_key_head_dim", in.at("linear_key_head_dim"), 1, 256);  // the delta rule's
  d.value_dim = in.size("linear_value_head_dim");
  d.taps = in.range("linear_conv_kernel_dim", in.at("linear_conv_kernel_dim"), 2, kMostTaps);
  return d;
}

// By layer_types, or every full_attention_interval-th.
bool is_attention(const ConfigReader& in, std::size_t layer) {
  const json* types = in.find("layer_types");
  if (types == nullptr)
    return (static_cast<std::int64_t>(layer) + 1) % in.size("full_attention_interval", kUsualInterval) == 0;
  if (!types->is_array() || types->size() != static_cast<std::size_t>(in.size("num_hidden_layers")))
    in.bad("layer_types is ", types->dump(), ", expected one type for each layer");
  const json& type = (*types)[layer];
  if (type != "full_attention" && type != "linear_attention") in.unsupported("layer type ", type.dump());
  return type == "full_attention";
}

}  // namespace

void read_delta_nets(const ConfigReader& in, bool fused, ModelConfig& config) {
  const DeltaNetSpec delta_net = read_delta_net(in, fused);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    LayerSpec& layer = config.layers[i];
    std::get<AttentionSpec>(layer.mixer).output_gate = true;
    if (!is_attention(in, i)) layer.mixer = delta_net;
  }
}

void write_interval(const ModelConfig& config, json& out, const std::string& where, const char* program) {
  const auto is_delta_net = [&](std::size_t i) {
    return std::holds_alternative<DeltaNetSpec>(config.layers[i].mixer);
  };
  std::size_t interval = 1;
  while (interval <= config.layers.size() && is_delta_net(interval - 1)) ++interval;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (is_delta_net(i) == ((i + 1) % interval != 0)) continue;
    fail(ErrorCode::not_supported, where, ": layer ", i, " is ", is_delta_net(i) ? "linear" : "full",
         " attention, ", program, " has full attention where the layer's number + 1 is a multiple of ",
         interval);
  }
  out[kInterval] = interval;
}

// llama.cpp's classes have keys as long as values.
void write_delta_nets_gguf(const ModelConfig& config, json& out, const std::string& where) {
  const std::string& type = config.architecture->model_type;
  write_interval(config, out, where, "llama.cpp");
  if (first_attention(config) == nullptr)
    fail(ErrorCode::not_supported, where, ": no layer is full attention, llama.cpp wants one in ", type);
  for (const LayerSpec& layer : config.layers) {
    const auto* d = std::get_if<DeltaNetSpec>(&layer.mixer);
    if (d == nullptr) continue;
    out[kValues] = d->values();
    if (d->key_dim == d->value_dim) continue;
    fail(ErrorCode::not_supported, where, ": linear_key_head_dim is ", d->key_dim,
         " and linear_value_head_dim ", d->value_dim, ", llama.cpp wants them equal in ", type);
  }
  if (!out.contains(kValues))
    fail(ErrorCode::not_supported, where, ": no layer is linear attention, llama.cpp wants one in ", type);
}

namespace {

// Some files say of each layer whether it is linear attention.
void read_layer_types(const GgufKeys& keys, json& config) {
  const GgufValue* value = keys.file.find(keys.full(kLinearLayers));
  if (value == nullptr) return;
  const bool is_list = value->type == GgufValueType::array && value->element_type == GgufValueType::boolean;
  if (!is_list || config.at("num_hidden_layers") != value->count) {
    keys.fail_value(kLinearLayers, str(value->count, " of ", name(value->element_type)),
                    "true or false for each layer");
  }
  for (const std::byte is_linear : value->bytes)
    config["layer_types"].push_back(is_linear == std::byte{0} ? "full_attention" : "linear_attention");
}

}  // namespace

void read_delta_nets_gguf(const GgufKeys& keys, json& config) {
  for (const GgufKey& key : kDeltaNetKeys)
    config[key.config] =
        keys.positive(key.key, std::string_view(key.config) == kInterval ? kUsualInterval : 0);
  const std::int64_t heads = config["linear_num_value_heads"], dim = config["linear_key_head_dim"];
  const std::int64_t values = config[kValues];
  if (values != heads * dim) keys.fail_value("ssm.inner_size", values, str(heads, " heads of ", dim));
  config.erase(kValues);
  read_layer_types(keys, config);
  config["linear_value_head_dim"] = dim;
  if (!config.contains("partial_rotary_factor")) config["partial_rotary_factor"] = 1.0;
}

namespace {

void read(const ConfigReader& in, ModelConfig& config) {
  read_qwen3_moe(in, config);
  read_delta_nets(in, true, config);
  const std::int64_t shared = in.size("shared_expert_intermediate_size");
  for (LayerSpec& layer : config.layers) {
    if (auto* experts = std::get_if<SparseMlpSpec>(&layer.mlp)) experts->shared_width = shared;
  }
  const json* nested = in.find("rope_parameters");
  const bool says_part =
      in.has("partial_rotary_factor") || (nested && nested->contains("partial_rotary_factor"));
  config.ropes = {read_rope(in)};
  if (!says_part) config.ropes.front().partial_rotary_factor = kQwenRotaryPart;
}

void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  write_qwen3_moe_mlx(config, out, where);
  write_interval(config, out, where, "mlx-lm");
  out["partial_rotary_factor"] = config.ropes.front().partial_rotary_factor;
}

void write_gguf(const ModelConfig& config, json& out, const std::string& where) {
  write_qwen3_moe_gguf(config, out, where);
  write_delta_nets_gguf(config, out, where);
}

void read_gguf(const GgufKeys& keys, json& config) {
  read_qwen3_moe_gguf(keys, config);
  read_delta_nets_gguf(keys, config);
  config[kSharedWidth.config] = keys.positive(kSharedWidth.key);
}

// Of GGUF files.
std::vector<GgufKey> written_keys() {
  std::vector<GgufKey> keys{std::begin(kExpertKeys), std::end(kExpertKeys)};
  keys.insert(keys.end(), std::begin(kDeltaNetKeys), std::end(kDeltaNetKeys));
  keys.push_back(kSharedWidth);
  return keys;
}
std::vector<std::string_view> read_keys() {
  std::vector<std::string_view> keys = names_of(written_keys());
  keys.push_back(kLinearLayers);
  return keys;
}

[[maybe_unused]] const bool registered = register_architecture(
    {.model_type = "qwen3_next",
     .class_name = "Qwen3NextForCausalLM",
     .gguf = "qwen3next",
     .gguf_mlp_norm = "post_attention_norm",
     .reads = {"attention_bias", "layer_types", "partial_rotary_factor", "full_attention_interval",
               "shared_expert_intermediate_size", "linear_num_key_heads", "linear_num_value_heads",
               "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
               "decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size", "norm_topk_prob",
               "num_experts", "num_local_experts", "num_experts_per_tok", "use_qk_norm"},
     .zero_centred = {"input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm"},
     .harmless = {"max_window_layers", "output_router_logits", "router_aux_loss_coef"},
     .gguf_keys = read_keys(),
     .read = read,
     .write_mlx = write_mlx,
     .read_gguf = read_gguf});
[[maybe_unused]] const bool written = register_gguf_architecture(
    "qwen3_next",
    {.name = "qwen3next", .has_partial_rope = true, .keys = written_keys(), .write = write_gguf});

}  // namespace
}  // namespace mixtape
