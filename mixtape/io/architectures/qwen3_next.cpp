// qwen3_next: gated delta nets, gated attention in every few layers, experts with a shared one.
#include "mixtape/io/architecture.h"
#include "mixtape/io/architectures/qwen3.h"
#include "mixtape/io/architectures/qwen3_moe.h"
#include "mixtape/io/config_parts.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr double kRotaryPart = 0.25;  // where the config says nothing
constexpr std::int64_t kInterval = 4;
constexpr std::int64_t kMostTaps = 16;  // causal_conv1d's

DeltaNetSpec read_delta_net(const ConfigReader& in) {
  DeltaNetSpec d;
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
    return (static_cast<std::int64_t>(layer) + 1) % in.size("full_attention_interval", kInterval) == 0;
  if (!types->is_array() || types->size() != static_cast<std::size_t>(in.size("num_hidden_layers")))
    in.bad("layer_types is ", types->dump(), ", expected one type for each layer");
  const json& type = (*types)[layer];
  if (type != "full_attention" && type != "linear_attention") in.unsupported("layer type ", type.dump());
  return type == "full_attention";
}

void read(const ConfigReader& in, ModelConfig& config) {
  read_qwen3_moe(in, config);
  const std::int64_t shared = in.size("shared_expert_intermediate_size");
  const DeltaNetSpec delta_net = read_delta_net(in);
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    LayerSpec& layer = config.layers[i];
    std::get<AttentionSpec>(layer.mixer).output_gate = true;
    if (!is_attention(in, i)) layer.mixer = delta_net;
    if (auto* experts = std::get_if<SparseMlpSpec>(&layer.mlp)) experts->shared_width = shared;
  }
  const json* nested = in.find("rope_parameters");
  const bool says_part =
      in.has("partial_rotary_factor") || (nested && nested->contains("partial_rotary_factor"));
  config.ropes = {read_rope(in)};
  if (!says_part) config.ropes.front().partial_rotary_factor = kRotaryPart;
}

// mlx-lm's class knows layers by an interval, and insists on most keys.
std::int64_t interval_of(const ModelConfig& config, const std::string& where) {
  const auto is_delta_net = [&](std::size_t i) {
    return std::holds_alternative<DeltaNetSpec>(config.layers[i].mixer);
  };
  std::size_t interval = 1;
  while (interval <= config.layers.size() && is_delta_net(interval - 1)) ++interval;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    if (is_delta_net(i) == ((i + 1) % interval != 0)) continue;
    fail(ErrorCode::not_supported, where, ": layer ", i, " is ", is_delta_net(i) ? "linear" : "full",
         " attention, mlx-lm has full attention where the layer's number + 1 is a multiple of ", interval);
  }
  return static_cast<std::int64_t>(interval);
}

void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  write_qwen3_moe_mlx(config, out, where);
  out["full_attention_interval"] = interval_of(config, where);
  out["partial_rotary_factor"] = config.ropes.front().partial_rotary_factor;
}

[[maybe_unused]] const bool registered = register_architecture(
    {.model_type = "qwen3_next",
     .class_name = "Qwen3NextForCausalLM",
     .reads = {"attention_bias", "layer_types", "partial_rotary_factor", "full_attention_interval",
               "shared_expert_intermediate_size", "linear_num_key_heads", "linear_num_value_heads",
               "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim",
               "decoder_sparse_step", "mlp_only_layers", "moe_intermediate_size", "norm_topk_prob",
               "num_experts", "num_local_experts", "num_experts_per_tok", "use_qk_norm"},
     .zero_centred = {"input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm"},
     .harmless = {"max_window_layers", "output_router_logits", "router_aux_loss_coef"},
     .read = read,
     .write_mlx = write_mlx});

}  // namespace
}  // namespace mixtape
