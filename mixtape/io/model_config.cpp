#include "mixtape/io/model_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "mixtape/io/config_parts.h"
#include "mixtape/io/config_reader.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxLayers = 65536;  // far above any model: a corrupt count must not take memory

const Architecture& architecture_of(const ConfigReader& in) {
  const std::string type = in.text("model_type");
  const Architecture* found = find_architecture(type);
  if (found == nullptr) {
    fail(ErrorCode::not_supported, in.where(), ": model_type '", type,
         "' is not supported yet, expected one of ", architecture_names());
  }
  return *found;
}

bool reads(const Architecture& architecture, std::string_view key) {
  return std::find(architecture.reads.begin(), architecture.reads.end(), key) != architecture.reads.end();
}

void refuse_layer_types(const ConfigReader& in) {
  const json* types = in.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) in.bad("layer_types is ", types->dump(), ", expected a list");
  for (const json& type : *types) {
    if (type != "full_attention") in.unsupported("layer type ", type.dump());
  }
}

// Keys of every type: read here, by read_attention and read_rope, or without a part in what a model computes.
bool is_common(std::string_view key) {
  static const std::set<std::string_view> known = {"_attn_implementation",
                                                   "_attn_implementation_autoset",
                                                   "_name_or_path",
                                                   "architectures",
                                                   "attention_dropout",
                                                   "auto_map",
                                                   "bos_token_id",
                                                   "cache_implementation",
                                                   "default_theta",
                                                   "dtype",
                                                   "eos_token_id",
                                                   "head_dim",
                                                   "hidden_act",
                                                   "hidden_activation",
                                                   "hidden_size",
                                                   "initializer_range",
                                                   "intermediate_size",
                                                   "layer_types",
                                                   "max_position_embeddings",
                                                   "model_type",
                                                   "num_attention_heads",
                                                   "num_hidden_layers",
                                                   "num_key_value_heads",
                                                   "original_max_position_embeddings",
                                                   "pad_token_id",
                                                   "pretraining_tp",
                                                   "quantization",
                                                   "quantization_config",
                                                   "rms_norm_eps",
                                                   "rope_parameters",
                                                   "rope_scaling",
                                                   "rope_theta",
                                                   "tie_word_embeddings",
                                                   "torch_dtype",
                                                   "transformers_version",
                                                   "unsloth_fixed",
                                                   "unsloth_version",
                                                   "use_cache",
                                                   "vocab_size"};
  return known.contains(key);
}

// Those of a type's config.json that nobody knows.
std::vector<std::string> unknown_keys(const Architecture& architecture, const json& source) {
  const auto among = [](const std::vector<std::string_view>& keys, std::string_view key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  std::vector<std::string> unknown;
  for (const auto& [key, value] : source.items()) {
    const bool is_known = value.is_null() || is_common(key) || reads(architecture, key) ||
                          among(architecture.harmless, key) || among(refused_keys(), key) ||
                          among(refused_flags(), key);
    if (!is_known) unknown.push_back(key);
  }
  return unknown;
}

void refuse_unknown(const ConfigReader& in, const Architecture& architecture, const json& source) {
  if (architecture.passes_over_unknown) return;
  const std::vector<std::string> unknown = unknown_keys(architecture, source);
  if (!unknown.empty()) in.unsupported("key '", unknown.front(), "' may change the model and");
}

// Settings that change what the model computes and that its architecture doesn't read.
void refuse_unsupported(const ConfigReader& in, const Architecture& architecture) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    if (reads(architecture, key)) continue;
    if (in.has(key) && in.text(key) != "silu") in.unsupported(key, " '", in.text(key), "'");
  }
  for (const std::string_view key : refused_flags()) {
    if (!reads(architecture, key)) in.refuse_true(key.data());
  }
  for (const std::string_view key : refused_keys()) {
    if (!reads(architecture, key) && in.has(key.data())) in.unsupported(key);
  }
  if (!reads(architecture, "layer_types")) refuse_layer_types(in);
  const json* quantization = in.find("quantization_config");
  if (quantization != nullptr && quantization->is_object() && quantization->contains("quant_method")) {
    in.unsupported("quant_method ", (*quantization)["quant_method"].dump());
  }
}

void check_ropes(const ConfigReader& in, const ModelConfig& config) {
  for (const LayerSpec& layer : config.layers) {
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (attention == nullptr || attention->rope == kNoRope) continue;
    check_rope(in, config.ropes.at(static_cast<std::size_t>(attention->rope)), attention->head_dim);
  }
}

// Yarn's is written as what mlx-lm multiplies the factor's logarithm by.
double mlx_attention_factor(const RopeConfig& rope, std::int64_t positions) {
  if (rope.type != RopeType::longrope) return rope.factor > 1.0 ? rope.attention_factor : 1.0;
  return longrope_attention_factor(static_cast<double>(positions),
                                   static_cast<double>(rope.original_max_position_embeddings));
}

// What mlx-lm computes in another way, or not at all.
void refuse_rope_for_mlx(const ModelConfig& config, const std::string& where) {
  const RopeConfig& rope = config.ropes.front();
  if (rope.partial_rotary_factor != 1.0 && !reads(*config.architecture, "partial_rotary_factor")) {
    fail(ErrorCode::not_supported, where, ": partial_rotary_factor is ", rope.partial_rotary_factor,
         ", mlx-lm rotates all of head_dim in ", config.architecture->model_type);
  }
  if (!rope.truncate && !config.architecture->others_round_yarn)
    fail(ErrorCode::not_supported, where, ": truncate = false, mlx-lm has whole pairs between yarn's bounds");
  const double expected = mlx_attention_factor(rope, config.max_position_embeddings);
  if (std::abs(rope.attention_factor - expected) <= 1e-6 * expected) return;
  fail(ErrorCode::not_supported, where, ": attention_factor of ", name(rope.type), " is ",
       rope.attention_factor, ", mlx-lm has ", expected);
}

void read_token_ids(const ConfigReader& in, ModelConfig& config) {
  const auto id = [&](const char* key, const json& value) {
    return in.range(key, value, 0, config.vocab_size - 1);
  };
  if (const json* bos = in.find("bos_token_id")) config.bos_token_id = id("bos_token_id", *bos);
  const json* eos = in.find("eos_token_id");
  if (eos == nullptr) return;
  const json list = eos->is_array() ? *eos : json::array({*eos});
  for (const json& value : list) config.eos_token_ids.push_back(id("eos_token_id", value));
}

std::optional<DType> dtype_of_config(const ConfigReader& in) {
  const char* key = in.has("dtype") ? "dtype" : "torch_dtype";
  if (!in.has(key)) return std::nullopt;
  const std::string text = in.text(key);
  if (text == "float32") return DType::f32;
  if (text == "bfloat16") return DType::bf16;
  if (text == "float16") return DType::f16;
  in.unsupported(key, " '", text, "'");
}

}  // namespace

const AttentionSpec* first_attention(const ModelConfig& config) {
  for (const LayerSpec& layer : config.layers) {
    if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer)) return attention;
  }
  return nullptr;
}

const std::vector<std::string_view>& refused_keys() {
  static const std::vector<std::string_view> keys = {
      "sliding_window", "attn_logit_softcapping", "final_logit_softcapping", "logits_scaling",
      "logit_scale",    "embedding_multiplier",   "residual_multiplier",     "attention_multiplier",
      "clip_qkv"};
  return keys;
}

const std::vector<std::string_view>& refused_flags() {
  static const std::vector<std::string_view> keys = {"use_sliding_window", "attention_bias", "mlp_bias",
                                                     "qkv_bias"};
  return keys;
}

ModelConfig ModelConfig::parse(const json& source, const std::string& where) {
  const ConfigReader in(source, where);
  ModelConfig config;
  config.architecture = &architecture_of(in);
  refuse_unsupported(in, *config.architecture);
  refuse_unknown(in, *config.architecture, source);
  config.vocab_size = in.size("vocab_size");
  config.hidden_size = in.size("hidden_size");
  in.range("num_hidden_layers", in.at("num_hidden_layers"), 1, kMaxLayers);
  config.max_position_embeddings = in.size("max_position_embeddings", 0);
  config.rms_norm_eps = in.positive("rms_norm_eps");
  config.tie_word_embeddings = in.boolean("tie_word_embeddings", false);
  config.architecture->read(in, config);
  if (config.ropes.empty()) config.ropes = {read_rope(in)};
  check_ropes(in, config);
  read_token_ids(in, config);
  config.dtype = dtype_of_config(in);
  return config;
}

std::vector<std::string> passed_over_keys(const json& source) {
  const json type = source.value("model_type", json());
  const Architecture* architecture = type.is_string() ? find_architecture(type.get<std::string>()) : nullptr;
  if (architecture == nullptr || !architecture->passes_over_unknown) return {};
  std::vector<std::string> keys = unknown_keys(*architecture, source);
  std::erase(keys, "partial_rotary_factor");  // read_rope's, of every type
  return keys;
}

json with_defaults(const json& source, const ModelConfig& config) {
  json out = source;
  if (const AttentionSpec* attention = first_attention(config)) {
    out["head_dim"] = attention->head_dim;
    out["num_key_value_heads"] = attention->kv_heads;
  }
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  out["rope_theta"] = config.ropes.front().theta;
  out["rope_scaling"] = rope_scaling_of(config.ropes.front());
  if (config.ropes.front().type == RopeType::yarn) out.erase("rope_parameters");  // mscale may be another
  return out;
}

json to_mlx_config(const json& source, const json& quantization, const std::string& where) {
  const ModelConfig config = ModelConfig::parse(source, where);
  refuse_rope_for_mlx(config, where);
  json out = with_defaults(source, config);
  if (config.architecture->write_mlx) config.architecture->write_mlx(config, out, where);
  out["quantization"] = quantization;
  out["quantization_config"] = quantization;
  return out;
}

}  // namespace mixtape
