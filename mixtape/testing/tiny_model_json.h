// A config.json of a tiny model: tests parse it for each architecture.
#pragma once

#include <string>

namespace mixtape::testing {

// Sizes that suit every model type; those of experts and delta nets for types with experts alone.
inline std::string tiny_model_json(const std::string& model_type) {
  const bool is_next = model_type.ends_with("_next"), has_experts = model_type.ends_with("_moe") || is_next;
  const bool has_delta_nets = is_next || model_type.starts_with("qwen3_5");
  const bool has_local_experts = model_type.ends_with("_oss");
  const std::string local_experts =
      R"("num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 3,)";
  const std::string experts = R"("num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 8,)";
  const std::string delta_nets = R"("full_attention_interval": 2, "linear_num_key_heads": 1,
    "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 3,)";
  return R"({"vocab_size": 19, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "rms_norm_eps": 1e-6,)" +
         (has_experts ? experts : "") + (has_local_experts ? local_experts : "") +
         (has_delta_nets ? delta_nets : "") + R"("model_type": ")" + model_type + "\"}";
}

}  // namespace mixtape::testing
