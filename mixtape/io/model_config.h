// config.json of a language model: what it is made of, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mixtape/core/dtype.h"
#include "mixtape/io/architecture.h"
#include "mixtape/io/json_fwd.h"
#include "mixtape/io/layer_spec.h"
#include "mixtape/io/rope_config.h"

namespace mixtape {

struct ModelConfig {
  const Architecture* architecture = nullptr;  // never null after parse
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t max_position_embeddings = 0;  // 0: not stated
  double rms_norm_eps = 0.0;
  double norm_offset =
      0.0;  // what is added to the weights of norms as they are stored: 1 where they stand for 1 + w
  double embedding_scale = 1.0;  // of the embedding's rows
  double logit_scale = 1.0;
  bool tie_word_embeddings = false;
  std::vector<RopeConfig> ropes;  // the rotary tables that layers refer to
  std::vector<LayerSpec> layers;

  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;  // may be empty
  std::optional<DType> dtype;               // `dtype` or `torch_dtype`: f32, bf16 or f16

  // Reads a parsed config.json; null means absent. Messages begin with `where`. Throws not_supported, by
  // name, for an architecture, rope type or setting that would change the model; format for anything missing,
  // contradictory or out of range.
  static ModelConfig parse(const Json& json, const std::string& where);
};

// Null for a model without attention.
const AttentionSpec* first_attention(const ModelConfig& config);

// Keys of a config.json that nobody knows and that its type passes over (Architecture::passes_over_unknown); none where
// the type is not known.
std::vector<std::string> passed_over_keys(const Json& config);

// Keys whose presence, and keys whose being true, changes what a model computes: refused unless the
// architecture reads them.
const std::vector<std::string_view>& refused_keys();
const std::vector<std::string_view>& refused_flags();

// The config.json of a quantized MLX directory: every key of `source`, the older spellings that loaders need,
// and `quantization` twice, under "quantization" and "quantization_config". Throws not_supported for a model
// that mlx-lm cannot express.
Json to_mlx_config(const Json& source, const Json& quantization, const std::string& where);

}  // namespace mixtape
