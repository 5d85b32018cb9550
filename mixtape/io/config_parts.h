// Parts of config.json that several model types write alike, for the files of architectures/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mixtape/io/config_reader.h"
#include "mixtape/io/model_config.h"

namespace mixtape {

// num_attention_heads, num_key_value_heads and head_dim (hidden_size / heads unless given).
AttentionSpec read_attention(const ConfigReader& in, std::int64_t hidden_size);

// `num_hidden_layers` layers of one kind.
std::vector<LayerSpec> equal_layers(const ConfigReader& in, const LayerSpec& layer);

// Entries of layer_types.
inline constexpr const char *kFullAttention = "full_attention", *kSlidingAttention = "sliding_attention";
// Whether each layer sees a window: by layer_types, or all but every `interval`-th.
std::vector<bool> sliding_layers(const ConfigReader& in, std::size_t layers, std::int64_t interval);

// `source`, whose parsed form is `config`, with what it leaves to defaults and the older spellings that loaders need.
nlohmann::json with_defaults(const nlohmann::json& source, const ModelConfig& config);

// Throws not_supported, naming `where`, for heads that do not make up the hidden size, as the class of `program` (llama.cpp,
// mlx-lm) wants them to.
void require_whole_heads(const ModelConfig& config, const std::string& where, const char* program);

// Adds max_position_embeddings where it is missing: mlx-lm's qwen classes insist on the key.
void write_qwen_positions(const ModelConfig& config, nlohmann::json& out);

}  // namespace mixtape
