// What qwen3 and qwen3_moe have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mixtape/io/architecture.h"
#include "mixtape/io/model_config.h"

namespace mixtape {

AttentionSpec read_qwen3_attention(const ConfigReader& in, std::int64_t hidden_size);
void write_qwen3_mlx(const ModelConfig& config, nlohmann::json& out, const std::string& where);
void write_qwen3_gguf(const ModelConfig& config, nlohmann::json& out, const std::string& where);
void read_qwen3_gguf(const GgufKeys& keys, nlohmann::json& config);

}  // namespace mixtape
