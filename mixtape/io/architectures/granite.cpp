// granite: a llama with four multipliers: of the embedding, of scores, of what layers add, and of logits.
#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/gguf_keys.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr const char *kEmbedding = "embedding_multiplier", *kScores = "attention_multiplier",
                     *kResidual = "residual_multiplier", *kLogits = "logits_scaling";
constexpr GgufKey kReals[] = {{"embedding_scale", kEmbedding},
                              {"attention.scale", kScores},
                              {"residual_scale", kResidual},
                              {"logit_scale", kLogits}};
constexpr const char* kRotates =
    "rope.scaling.finetuned";  // false, in llama.cpp's reading: heads are not rotated

void read(const ConfigReader& in, ModelConfig& config) {
  AttentionSpec attention = read_attention(in, config.hidden_size);
  attention.qkv_bias = attention.output_bias = in.boolean("attention_bias", false);
  attention.scale = in.positive(kScores, 1.0);
  LayerSpec layer{attention, DenseMlpSpec{in.size("intermediate_size"), in.boolean("mlp_bias", false)}};
  layer.residual_scale = in.positive(kResidual, 1.0);
  config.layers = equal_layers(in, layer);
  config.embedding_scale = in.positive(kEmbedding, 1.0);
  config.logit_scale = 1.0 / in.positive(kLogits, 1.0);
}

// What the absence of keys means that the other programs insist on.
void write_defaults(const ModelConfig& config, json& out) {
  for (const GgufKey& key : kReals) {
    if (out.value(key.config, json()).is_null()) out[key.config] = 1.0;
  }
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (out.value(key, json()).is_null()) out[key] = false;
  }
  constexpr std::int64_t kPositions = 2048;  // Hugging Face's
  if (config.max_position_embeddings == 0) out["max_position_embeddings"] = kPositions;
}

void write_mlx(const ModelConfig& config, json& out, const std::string& where) {
  require_whole_heads(config, where, "mlx-lm");
  write_defaults(config, out);
}

void write_gguf(const ModelConfig& config, json& out, const std::string&) { write_defaults(config, out); }

void read_gguf(const GgufKeys& keys, json& config) {
  for (const GgufKey& key : kReals) config[key.config] = keys.has(key.key) ? keys.number(key.key) : 1.0;
  config["attention_bias"] = keys.has_tensor("blk.0.attn_q.bias");
  config["mlp_bias"] = keys.has_tensor("blk.0.ffn_gate.bias");
  if (keys.has(kRotates) && !keys.file.boolean(keys.full(kRotates)))
    fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full(kRotates),
         "' is false, expected a model whose heads are rotated");
}

[[maybe_unused]] const bool registered =
    register_architecture({.model_type = "granite",
                           .class_name = "GraniteForCausalLM",
                           .gguf = "granite",
                           .gguf_interleaves_heads = true,
                           .reads = {"attention_bias", "mlp_bias", kEmbedding, kScores, kResidual, kLogits},
                           .gguf_keys = {kReals[0].key, kReals[1].key, kReals[2].key, kReals[3].key},
                           .read = read,
                           .write_mlx = write_mlx,
                           .read_gguf = read_gguf});
[[maybe_unused]] const bool written =
    register_gguf_architecture("granite", {.name = "granite",
                                           .has_rope_freqs = true,
                                           .reals = {std::begin(kReals), std::end(kReals)},
                                           .write = write_gguf});

}  // namespace
}  // namespace mixtape
