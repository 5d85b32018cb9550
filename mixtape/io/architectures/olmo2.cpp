// olmo2: norms behind both halves of a layer instead of before them, and over all of q, and of k.
#include "mixtape/io/architecture.h"
#include "mixtape/io/config_parts.h"
#include "mixtape/io/gguf_architecture.h"

namespace mixtape {
namespace {

using nlohmann::json;

void read(const ConfigReader& in, ModelConfig& config) {
  AttentionSpec attention = read_attention(in, config.hidden_size);
  attention.qkv_bias = attention.output_bias = in.boolean("attention_bias", false);
  attention.qk_norms = attention.joint_norms = true;
  config.layers =
      equal_layers(in, {attention, DenseMlpSpec{in.size("intermediate_size")}, NormPlaces::after});
}

void write_gguf(const ModelConfig& config, json& out, const std::string& where) {
  const std::string& type = config.architecture->model_type;
  if (out.value("attention_bias", json()) == true)
    fail(ErrorCode::not_supported, where, ": attention_bias = true, llama.cpp has no biases in ", type);
  if (config.tie_word_embeddings)
    fail(ErrorCode::not_supported, where, ": embeddings are tied, llama.cpp wants an output matrix in ",
         type);
  require_whole_heads(config, where, "llama.cpp");
}

[[maybe_unused]] const bool registered = register_architecture({.model_type = "olmo2",
                                                                .class_name = "Olmo2ForCausalLM",
                                                                .gguf = "olmo2",
                                                                .reads = {"attention_bias"},
                                                                .read = read});
[[maybe_unused]] const bool written =
    register_gguf_architecture("olmo2", {.name = "olmo2", .write = write_gguf});

}  // namespace
}  // namespace mixtape
