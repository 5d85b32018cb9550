// What qwen3_moe and the types built on it have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mixtape/io/architecture.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/model_config.h"

namespace mixtape {

void read_qwen3_moe(const ConfigReader& in, ModelConfig& config);
void write_qwen3_moe_mlx(const ModelConfig& config, nlohmann::json& out, const std::string& where);
void write_qwen3_moe_gguf(const ModelConfig& config, nlohmann::json& out, const std::string& where);
void read_qwen3_moe_gguf(const GgufKeys& keys, nlohmann::json& config);

inline constexpr GgufKey kExpertKeys[] = {{"expert_count", "num_experts"},
                                          {"expert_feed_forward_length", "moe_intermediate_size"},
                                          {"expert_used_count", "num_experts_per_tok"}};

}  // namespace mixtape
