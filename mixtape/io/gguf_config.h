// config.json made from the architecture keys of a GGUF file.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mixtape/io/gguf.h"

namespace mixtape {

// A Hugging Face style config.json (LlamaForCausalLM, Qwen3ForCausalLM or Qwen3MoeForCausalLM). The
// vocabulary is what the embedding table has rows for; embeddings are tied where there is no output.weight;
// biases are those found in the first layer; rotary settings are gguf_rope.h's. Throws not_supported
// by name for another architecture, rope type or any key that might change the model; format for missing or
// contradictory values.
nlohmann::json gguf_config_json(const GgufFile& file);

}  // namespace mixtape
