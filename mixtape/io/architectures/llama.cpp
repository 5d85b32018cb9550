// llama: Llama 1 to 3, SmolLM2, and whatever else has its shape.
#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

void read(const ConfigReader& in, ModelConfig& config) {
  AttentionSpec attention = read_attention(in, config.hidden_size);
  attention.qkv_bias = attention.output_bias = in.boolean("attention_bias", false);
  config.layers = equal_layers(
      in, {attention, DenseMlpSpec{in.size("intermediate_size"), in.boolean("mlp_bias", false)}});
}

void read_gguf(const GgufKeys& keys, nlohmann::json& config) {
  config["attention_bias"] = keys.has_tensor("blk.0.attn_q.bias");
  config["mlp_bias"] = keys.has_tensor("blk.0.ffn_gate.bias");
}

[[maybe_unused]] const bool registered = register_architecture({.model_type = "llama",
                                                                .class_name = "LlamaForCausalLM",
                                                                .gguf = "llama",
                                                                .gguf_interleaves_heads = true,
                                                                .reads = {"attention_bias", "mlp_bias"},
                                                                .passes_over_unknown = true,
                                                                .read = read,
                                                                .read_gguf = read_gguf});

[[maybe_unused]] const bool written =
    register_gguf_architecture("llama", {.name = "llama", .has_rope_freqs = true});

}  // namespace
}  // namespace mixtape
