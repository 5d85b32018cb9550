// qwen2 (Qwen2 and Qwen2.5): a llama with biases on q, k and v.
#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"

namespace mixtape {
namespace {

void read(const ConfigReader& in, ModelConfig& config) {
  AttentionSpec attention = read_attention(in, config.hidden_size);
  attention.qkv_bias = true;
  config.layers = equal_layers(in, {attention, DenseMlpSpec{in.size("intermediate_size"), false}});
}

void write_gguf(const ModelConfig& config, nlohmann::json& out, const std::string& where) {
  require_whole_heads(config, where, "llama.cpp");
  write_qwen_positions(config, out);
}

void write_mlx(const ModelConfig& config, nlohmann::json& out, const std::string&) {
  write_qwen_positions(config, out);
}

[[maybe_unused]] const bool registered = register_architecture({.model_type = "qwen2",
                                                                .class_name = "Qwen2ForCausalLM",
                                                                .gguf = "qwen2",
                                                                .reads = {"sliding_window"},
                                                                .harmless = {"max_window_layers"},
                                                                .passes_over_unknown = true,
                                                                .read = read,
                                                                .write_mlx = write_mlx});
[[maybe_unused]] const bool written =
    register_gguf_architecture("qwen2", {.name = "qwen2", .write = write_gguf});

}  // namespace
}  // namespace mixtape
