// qwen3_5_text: Qwen 3.5. Gated delta nets, their projections apart, gated attention in every few layers, dense MLPs.
#include "mixtape/io/architecture.h"
#include "mixtape/io/architectures/qwen3.h"
#include "mixtape/io/architectures/qwen3_next.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

// Of images' positions: those of text are one number.
constexpr const char* kImageSettings[] = {"mrope_section", "mrope_interleaved"};

RopeConfig read_text_rope(const ConfigReader& in) {
  json settings = json::object();
  for (const char* key :
       {"rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor", "max_position_embeddings"})
    if (in.has(key)) settings[key] = in.at(key);
  bool says_part = in.has("partial_rotary_factor");
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!settings.contains(key) || !settings[key].is_object()) continue;
    for (const char* image : kImageSettings) settings[key].erase(image);
    says_part |= settings[key].contains("partial_rotary_factor");
  }
  RopeConfig rope = read_rope(ConfigReader(settings, in.where()));
  if (!says_part) rope.partial_rotary_factor = kQwenRotaryPart;
  return rope;
}

void read(const ConfigReader& in, ModelConfig& config) {
  const AttentionSpec attention = read_qwen3_attention(in, config.hidden_size);
  config.layers = equal_layers(in, {attention, DenseMlpSpec{in.size("intermediate_size"), false}});
  read_delta_nets(in, false, config);
  config.ropes = {read_text_rope(in)};
}

// mlx-lm has one class for the text and the multimodal model, with rotary settings in their newer place.
void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  const RopeConfig& rope = config.ropes.front();
  write_qwen3_mlx(config, out, where);
  write_interval(config, out, where, "mlx-lm");
  out["model_type"] = config.architecture->multimodal;
  out["partial_rotary_factor"] = rope.partial_rotary_factor;
  json settings = rope_scaling_of(rope);
  if (settings.is_null()) settings = {{"type", name(rope.type)}, {"rope_type", name(rope.type)}};
  settings["rope_theta"] = rope.theta;
  settings["partial_rotary_factor"] = rope.partial_rotary_factor;
  out["rope_parameters"] = settings;
}

// llama.cpp has the heads of values in another order where they are more than those of keys.
void write_gguf(const ModelConfig& config, json& out, const std::string& where) {
  write_qwen3_gguf(config, out, where);
  write_delta_nets_gguf(config, out, where);
  if (out.at("linear_num_value_heads") == out.at("linear_num_key_heads")) return;
  fail(ErrorCode::not_supported, where, ": linear_num_value_heads is ",
       out.at("linear_num_value_heads").dump(), " and linear_num_key_heads ",
       out.at("linear_num_key_heads").dump(), ", which GGUF files of ", config.architecture->model_type,
       " store in another order");
}

void read_gguf(const GgufKeys& keys, json& config) {
  read_qwen3_gguf(keys, config);
  read_delta_nets_gguf(keys, config);
  const std::int64_t values = config.at("linear_num_value_heads"), heads = config.at("linear_num_key_heads");
  if (values == heads) return;
  fail(ErrorCode::not_supported, keys.file.where(), ": ", values, " heads of values and ", heads,
       " of keys, expected as many: others are stored in another order");
}

// Of GGUF files.
std::vector<GgufKey> written_keys() { return {std::begin(kDeltaNetKeys), std::end(kDeltaNetKeys)}; }
std::vector<std::string_view> read_keys() {
  std::vector<std::string_view> keys = names_of(written_keys());
  keys.push_back(kLinearLayers);
  return keys;
}

[[maybe_unused]] const bool registered = register_architecture(
    {.model_type = "qwen3_5_text",
     .class_name = "Qwen3_5ForCausalLM",
     .gguf = "qwen35",
     .gguf_mlp_norm = "post_attention_norm",
     .reads = {"attention_bias", "layer_types", "partial_rotary_factor", "full_attention_interval",
               "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
               "linear_value_head_dim", "linear_conv_kernel_dim", "use_qk_norm"},
     .zero_centred = {"input_layernorm", "post_attention_layernorm", "model.norm", "q_norm", "k_norm"},
     .harmless = {"attn_output_gate", "mamba_ssm_dtype", "mlp_only_layers", "mtp_num_hidden_layers",
                  "mtp_use_dedicated_embeddings"},
     .multimodal = "qwen3_5",
     .text_defaults = R"({"head_dim": 256, "num_attention_heads": 16, "num_key_value_heads": 4,
                          "linear_num_key_heads": 16, "linear_num_value_heads": 32, "rms_norm_eps": 1e-6,
                          "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                          "linear_conv_kernel_dim": 4, "vocab_size": 248320})",
     .gguf_keys = read_keys(),
     .read = read,
     .write_mlx = write_mlx,
     .read_gguf = read_gguf});
[[maybe_unused]] const bool written =
    register_gguf_architecture("qwen3_5_text", {.name = "qwen35",
                                                .has_partial_rope = true,
                                                .rope_sections = {11, 11, 10, 0},
                                                .keys = written_keys(),
                                                .write = write_gguf});

}  // namespace
}  // namespace mixtape
