// smollm3: a llama some of whose layers do not rotate their heads.
#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr double kTheta = 2e6;         // Hugging Face's default
constexpr std::int64_t kInterval = 4;  // and llama.cpp's only one

// By no_rope_layers, which holds 1 for a layer that rotates, or all but every so many-th.
std::vector<bool> rotating_layers(const ConfigReader& in, std::size_t layers) {
  const std::int64_t interval = in.size("no_rope_layer_interval", kInterval);
  const json* list = in.find("no_rope_layers");
  if (list != nullptr && (!list->is_array() || list->size() != layers))
    in.bad("no_rope_layers is ", list->dump(), ", expected one number for each of ", layers, " layers");
  std::vector<bool> rotating;
  for (std::size_t i = 0; i < layers; ++i) {
    const bool by_interval = (static_cast<std::int64_t>(i) + 1) % interval != 0;
    rotating.push_back(list ? in.range("no_rope_layers", (*list)[i], 0, 1) == 1 : by_interval);
  }
  return rotating;
}

bool is_rotating(const LayerSpec& layer) { return std::get<AttentionSpec>(layer.mixer).rope != kNoRope; }

void read(const ConfigReader& in, ModelConfig& config) {
  AttentionSpec attention = read_attention(in, config.hidden_size);
  attention.qkv_bias = attention.output_bias = in.boolean("attention_bias", false);
  config.layers = equal_layers(
      in, {attention, DenseMlpSpec{in.size("intermediate_size"), in.boolean("mlp_bias", false)}});
  const std::vector<bool> rotating = rotating_layers(in, config.layers.size());
  for (std::size_t i = 0; i < rotating.size(); ++i) {
    if (!rotating[i]) std::get<AttentionSpec>(config.layers[i].mixer).rope = kNoRope;
  }
  config.ropes = {read_rope(in, kTheta)};
  config.tie_word_embeddings = in.boolean("tie_word_embeddings", true);
}

void write_mlx(const ModelConfig& config, json& out, const std::string&) {
  json rotating = json::array();
  for (const LayerSpec& layer : config.layers) rotating.push_back(is_rotating(layer) ? 1 : 0);
  out["no_rope_layers"] = rotating;
}

void write_gguf(const ModelConfig& config, json& out, const std::string& where) {
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (out.value(key, json()) == true)
      fail(ErrorCode::not_supported, where, ": ", key, " = true, llama.cpp has no biases in ",
           config.architecture->model_type);
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const bool wanted = (i + 1) % kInterval != 0, found = is_rotating(config.layers[i]);
    if (found == wanted) continue;
    fail(ErrorCode::not_supported, where, ": layer ", i, found ? " rotates" : " does not rotate",
         ", llama.cpp rotates all but every ", kInterval, "th layer of ", config.architecture->model_type);
  }
}

void read_gguf(const GgufKeys&, json& config) { config["no_rope_layer_interval"] = kInterval; }

[[maybe_unused]] const bool registered = register_architecture(
    {.model_type = "smollm3",
     .class_name = "SmolLM3ForCausalLM",
     .gguf = "smollm3",
     .gguf_interleaves_heads = true,
     .reads = {"attention_bias", "mlp_bias", "no_rope_layers", "no_rope_layer_interval", "sliding_window"},
     .harmless = {"max_window_layers"},
     .read = read,
     .write_mlx = write_mlx,
     .read_gguf = read_gguf});
[[maybe_unused]] const bool written =
    register_gguf_architecture("smollm3", {.name = "smollm3", .write = write_gguf});

}  // namespace
}  // namespace mixtape
