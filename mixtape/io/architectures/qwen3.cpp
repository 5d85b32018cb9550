// qwen3: norms on the heads of q and k.
#include "mixtape/io/architectures/qwen3.h"

#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {

AttentionSpec read_qwen3_attention(const ConfigReader& in, std::int64_t hidden_size) {
  if (!in.boolean("use_qk_norm", true)) in.unsupported("use_qk_norm = false");
  AttentionSpec attention = read_attention(in, hidden_size);
  attention.qkv_bias = attention.output_bias = in.boolean("attention_bias", false);
  attention.qk_norms = true;
  return attention;
}

namespace {

void refuse_biases(const ModelConfig& config, const nlohmann::json& out, const std::string& where,
                   const char* reader) {
  if (!out.value("attention_bias", false)) return;
  fail(ErrorCode::not_supported, where, ": attention_bias = true, ", reader, " has no biases in ",
       config.architecture->model_type);
}

}  // namespace

void write_qwen3_mlx(const ModelConfig& config, nlohmann::json& out, const std::string& where) {
  refuse_biases(config, out, where, "mlx-lm");
  write_qwen_positions(config, out);
}

void write_qwen3_gguf(const ModelConfig& config, nlohmann::json& out, const std::string& where) {
  refuse_biases(config, out, where, "llama.cpp");
  write_qwen_positions(config, out);
}

void read_qwen3_gguf(const GgufKeys& keys, nlohmann::json& config) {
  config["attention_bias"] = keys.has_tensor("blk.0.attn_q.bias");
}

namespace {

void read(const ConfigReader& in, ModelConfig& config) {
  const AttentionSpec attention = read_qwen3_attention(in, config.hidden_size);
  config.layers = equal_layers(in, {attention, DenseMlpSpec{in.size("intermediate_size"), false}});
}

[[maybe_unused]] const bool registered =
    register_architecture({.model_type = "qwen3",
                           .class_name = "Qwen3ForCausalLM",
                           .gguf = "qwen3",
                           .reads = {"attention_bias", "sliding_window", "use_qk_norm"},
                           .harmless = {"max_window_layers"},
                           .passes_over_unknown = true,
                           .read = read,
                           .write_mlx = write_qwen3_mlx,
                           .read_gguf = read_qwen3_gguf});
[[maybe_unused]] const bool written =
    register_gguf_architecture("qwen3", {.name = "qwen3", .write = write_qwen3_gguf});

}  // namespace
}  // namespace mixtape
