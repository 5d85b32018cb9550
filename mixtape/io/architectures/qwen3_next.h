// What qwen3_next and the types built on it have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mixtape/io/architecture.h"
#include "mixtape/io/gguf_architecture.h"
#include "mixtape/io/model_config.h"

namespace mixtape {

// Makes of layers with attention those of gated delta nets and of gated attention.
void read_delta_nets(const ConfigReader& in, bool fused, ModelConfig& config);
// Adds full_attention_interval; throws not_supported for layers that no interval says, as the class of `program`
// (llama.cpp, mlx-lm) knows them.
void write_interval(const ModelConfig& config, nlohmann::json& out, const std::string& where,
                    const char* program);
// The same for llama.cpp, with the keys of the delta nets.
void write_delta_nets_gguf(const ModelConfig& config, nlohmann::json& out, const std::string& where);
void read_delta_nets_gguf(const GgufKeys& keys, nlohmann::json& config);

constexpr double kQwenRotaryPart = 0.25;  // of a head, where the config says nothing

constexpr std::string_view kLinearLayers = "attention.recurrent_layers";
inline constexpr GgufKey kDeltaNetKeys[] = {{"full_attention_interval", "full_attention_interval"},
                                            {"ssm.conv_kernel", "linear_conv_kernel_dim"},
                                            {"ssm.group_count", "linear_num_key_heads"},
                                            {"ssm.inner_size", "linear_values"},  // of all heads
                                            {"ssm.state_size", "linear_key_head_dim"},
                                            {"ssm.time_step_rank", "linear_num_value_heads"}};

}  // namespace mixtape
