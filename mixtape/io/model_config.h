// config.json of a language model: architecture, sizes and rotary settings, checked.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "mixtape/core/dtype.h"

namespace mixtape {

enum class Architecture { llama, qwen3, qwen3_moe };
enum class RopeType { plain, linear, llama3 };  // `plain` is spelled "default" in files

const char* name(Architecture architecture);
const char* name(RopeType type);

struct RopeConfig {
  RopeType type = RopeType::plain;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  // linear and llama3
  double factor = 1.0;
  // llama3
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_max_position_embeddings = 0;
};

struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  // of dense layers
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;      // divides num_attention_heads
  std::int64_t head_dim = 0;                 // even; hidden_size / num_attention_heads unless given
  std::int64_t max_position_embeddings = 0;  // 0: not stated
  double rms_norm_eps = 0.0;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  RopeConfig rope;

  // qwen3_moe; 0 experts elsewhere
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;
  bool norm_topk_prob = false;
  std::int64_t decoder_sparse_step = 1;
  std::vector<std::int64_t> mlp_only_layers;

  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  // may be empty
  std::optional<DType> dtype;               // `dtype` or `torch_dtype`: f32, bf16 or f16

  // Reads a parsed config.json; null means absent. Messages begin with `where`. Throws not_supported, by
  // name, for an architecture, rope type or setting that would change the model; format for anything missing,
  // contradictory or out of range.
  static ModelConfig parse(const nlohmann::json& json, const std::string& where);

  // Whether the MLP of this layer is a mixture of experts.
  bool is_sparse(std::int64_t layer) const;
  // How many of the head_dim entries are rotated; even.
  std::int64_t rotary_dims() const;
};

// f_i of pair (i, i + d/2), i < d/2 with d = rotary_dims(): the angle at position p is p*f_i. Computed in
// f64, scaled as the rope type says.
std::vector<float> rope_inverse_frequencies(const ModelConfig& config);

// The config.json of a quantized MLX directory: every key of `source`, the older spellings that loaders need,
// and `quantization` twice, under "quantization" and "quantization_config". Throws not_supported for a model
// that mlx-lm cannot express.
nlohmann::json to_mlx_config(const nlohmann::json& source, const nlohmann::json& quantization,
                             const std::string& where);

}  // namespace mixtape
