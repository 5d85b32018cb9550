#include "mixtape/io/model_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numbers>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxSize =
    std::numeric_limits<std::int32_t>::max();   // products of two stay in 63 bits
constexpr std::int64_t kQwenPositions = 32768;  // Hugging Face's default, for loaders that insist on the key

// Reads keys of one object; null counts as absent. Every message begins with `where`.
class Reader {
 public:
  Reader(const json& object, const std::string& where) : object_(object), where_(where) {
    if (!object.is_object()) bad("found ", object.type_name(), ", expected an object");
  }

  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  bool has(const char* key) const { return find(key) != nullptr; }

  std::int64_t size(const char* key) const { return range(key, at(key), 1, kMaxSize); }
  std::int64_t size(const char* key, std::int64_t fallback) const { return has(key) ? size(key) : fallback; }
  std::int64_t range(const char* key, const json& value, std::int64_t low, std::int64_t high) const {
    const bool inside = value.is_number_integer() && value >= low && value <= high;
    if (!inside) bad(key, " is ", value.dump(), ", expected a whole number from ", low, " to ", high);
    return value.get<std::int64_t>();
  }
  double positive(const char* key) const {
    const json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : 0.0;
    if (!(number > 0.0 && std::isfinite(number)))
      bad(key, " is ", value.dump(), ", expected a number above 0");
    return number;
  }
  double positive(const char* key, double fallback) const { return has(key) ? positive(key) : fallback; }
  bool boolean(const char* key, bool fallback) const {
    const json* value = find(key);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) bad(key, " is ", value->dump(), ", expected true or false");
    return value->get<bool>();
  }
  std::string text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string()) bad(key, " is ", value.dump(), ", expected a string");
    return value.get<std::string>();
  }
  const json& at(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) bad("has no ", key);
    return *value;
  }

  template <class... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(ErrorCode::format, where_, ": ", parts...);
  }
  template <class... Parts>
  [[noreturn]] void unsupported(const Parts&... parts) const {
    fail(ErrorCode::not_supported, where_, ": ", parts..., " is not supported yet");
  }

 private:
  const json& object_;
  const std::string& where_;
};

Architecture architecture_of(const Reader& in) {
  const std::string type = in.text("model_type");
  for (const auto a : {Architecture::llama, Architecture::qwen3, Architecture::qwen3_moe}) {
    if (type == name(a)) return a;
  }
  in.unsupported("model_type '", type, "'");
}

RopeType rope_type_of(const Reader& in) {
  if (!in.has("rope_type")) {
    if (in.has("factor")) in.bad("rope settings have a factor but no rope_type");
    return RopeType::plain;
  }
  const std::string type = in.text("rope_type");
  for (const auto t : {RopeType::plain, RopeType::linear, RopeType::llama3}) {
    if (type == name(t)) return t;
  }
  in.unsupported("rope type '", type, "'");
}

// Adds `from`'s entries; the same setting may be spelled in several places but not differently.
void merge_rope(json& into, const json& from, const Reader& in) {
  for (const auto& [key, value] : from.items()) {
    if (value.is_null()) continue;
    const std::string setting = key == "type" ? "rope_type" : key;
    if (into.contains(setting) && into[setting] != value) {
      in.bad("rope setting ", setting, " is both ", into[setting].dump(), " and ", value.dump());
    }
    into[setting] = value;
  }
}

// All rotary settings under their newer names, wherever the file keeps them.
json merged_rope(const Reader& in) {
  json merged = json::object();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const json* nested = in.find(key);
    if (nested == nullptr) continue;
    if (!nested->is_object()) in.bad(key, " is ", nested->dump(), ", expected an object");
    merge_rope(merged, *nested, in);
  }
  for (const char* key : {"rope_theta", "partial_rotary_factor"}) {
    if (const json* value = in.find(key)) merge_rope(merged, json{{key, *value}}, in);
  }
  return merged;
}

RopeConfig read_rope(const Reader& config, const std::string& where) {
  const json merged = merged_rope(config);
  const Reader in(merged, where);
  RopeConfig rope;
  rope.type = rope_type_of(in);
  rope.theta = in.positive("rope_theta", rope.theta);
  rope.partial_rotary_factor = in.positive("partial_rotary_factor", 1.0);
  if (rope.type != RopeType::plain) rope.factor = in.positive("factor");
  if (rope.type != RopeType::llama3) return rope;
  rope.low_freq_factor = in.positive("low_freq_factor");
  rope.high_freq_factor = in.positive("high_freq_factor");
  rope.original_max_position_embeddings = in.size("original_max_position_embeddings");
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    in.bad("high_freq_factor is ", rope.high_freq_factor, ", expected more than low_freq_factor ",
           rope.low_freq_factor);
  }
  return rope;
}

void refuse_true(const Reader& in, const char* key) {
  if (in.boolean(key, false)) in.unsupported(key, " = true");
}

void refuse_sliding_windows(const Reader& in, Architecture architecture) {
  refuse_true(in, "use_sliding_window");
  // Qwen files state a window that use_sliding_window switches on.
  if (architecture == Architecture::llama && in.has("sliding_window")) in.unsupported("sliding_window");
  const json* types = in.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array()) in.bad("layer_types is ", types->dump(), ", expected a list");
  for (const json& type : *types) {
    if (type != "full_attention") in.unsupported("layer type ", type.dump());
  }
}

// Settings that change what the model computes and that no block here implements.
void refuse_unsupported(const Reader& in, Architecture architecture) {
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    if (in.has(key) && in.text(key) != "silu") in.unsupported(key, " '", in.text(key), "'");
  }
  refuse_sliding_windows(in, architecture);
  for (const char* key :
       {"attn_logit_softcapping", "final_logit_softcapping", "logits_scaling", "logit_scale",
        "embedding_multiplier", "residual_multiplier", "attention_multiplier", "clip_qkv"}) {
    if (in.has(key)) in.unsupported(key);
  }
  if (architecture != Architecture::llama) {
    refuse_true(in, "mlp_bias");
    if (!in.boolean("use_qk_norm", true)) in.unsupported("use_qk_norm = false");
  }
  refuse_true(in, "qkv_bias");
  const json* quantization = in.find("quantization_config");
  if (quantization != nullptr && quantization->is_object() && quantization->contains("quant_method")) {
    in.unsupported("quant_method ", (*quantization)["quant_method"].dump());
  }
}

void read_heads(const Reader& in, ModelConfig& config) {
  config.num_attention_heads = in.size("num_attention_heads");
  config.num_key_value_heads = in.size("num_key_value_heads", config.num_attention_heads);
  if (config.num_attention_heads % config.num_key_value_heads != 0) {
    in.bad("num_attention_heads is ", config.num_attention_heads,
           ", expected a multiple of num_key_value_heads ", config.num_key_value_heads);
  }
  if (!in.has("head_dim") && config.hidden_size % config.num_attention_heads != 0) {
    in.bad("has no head_dim and hidden_size ", config.hidden_size, " is no multiple of num_attention_heads ",
           config.num_attention_heads);
  }
  config.head_dim = in.size("head_dim", config.hidden_size / config.num_attention_heads);
  if (config.head_dim % 2 != 0) in.bad("head_dim is ", config.head_dim, ", expected an even number");
}

void check_rotary_dims(const Reader& in, const ModelConfig& config) {
  const std::int64_t dims = config.rotary_dims();
  if (config.rope.partial_rotary_factor <= 1.0 && dims >= 2 && dims % 2 == 0) return;
  in.bad("partial_rotary_factor is ", config.rope.partial_rotary_factor, ", of head_dim ", config.head_dim,
         " it rotates ", dims, ", expected an even number from 2 to head_dim");
}

void read_layer_list(const Reader& in, ModelConfig& config) {
  const json* layers = in.find("mlp_only_layers");
  if (layers == nullptr) return;
  if (!layers->is_array()) in.bad("mlp_only_layers is ", layers->dump(), ", expected a list");
  for (const json& layer : *layers) {
    config.mlp_only_layers.push_back(in.range("mlp_only_layers", layer, 0, config.num_hidden_layers - 1));
  }
}

void read_experts(const Reader& in, ModelConfig& config) {
  if (config.architecture != Architecture::qwen3_moe) return;
  const bool both = in.has("num_experts") && in.has("num_local_experts");
  if (both && in.at("num_experts") != in.at("num_local_experts")) {
    in.bad("num_experts is ", in.at("num_experts").dump(), " but num_local_experts is ",
           in.at("num_local_experts").dump());
  }
  const char* key = in.has("num_experts") ? "num_experts" : "num_local_experts";
  config.num_experts = in.range(key, in.at(key), 0, kMaxSize);
  config.decoder_sparse_step = in.size("decoder_sparse_step", 1);
  config.norm_topk_prob = in.boolean("norm_topk_prob", false);
  read_layer_list(in, config);
  if (config.num_experts == 0) return;
  config.num_experts_per_tok =
      in.range("num_experts_per_tok", in.at("num_experts_per_tok"), 1, config.num_experts);
  config.moe_intermediate_size = in.size("moe_intermediate_size");
}

void read_token_ids(const Reader& in, ModelConfig& config) {
  const auto id = [&](const char* key, const json& value) {
    return in.range(key, value, 0, config.vocab_size - 1);
  };
  if (const json* bos = in.find("bos_token_id")) config.bos_token_id = id("bos_token_id", *bos);
  const json* eos = in.find("eos_token_id");
  if (eos == nullptr) return;
  const json list = eos->is_array() ? *eos : json::array({*eos});
  for (const json& value : list) config.eos_token_ids.push_back(id("eos_token_id", value));
}

std::optional<DType> dtype_of_config(const Reader& in) {
  const char* key = in.has("dtype") ? "dtype" : "torch_dtype";
  if (!in.has(key)) return std::nullopt;
  const std::string text = in.text(key);
  if (text == "float32") return DType::f32;
  if (text == "bfloat16") return DType::bf16;
  if (text == "float16") return DType::f16;
  in.unsupported(key, " '", text, "'");
}

// The frequency of one pair, before it is rounded to f32.
double scaled_frequency(double frequency, const RopeConfig& rope) {
  if (rope.type == RopeType::plain) return frequency;
  if (rope.type == RopeType::linear) return frequency / rope.factor;
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const auto length = static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength < length / rope.high_freq_factor) return frequency;
  if (wavelength > length / rope.low_freq_factor) return frequency / rope.factor;
  const double s =
      (length / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - s) * frequency / rope.factor + s * frequency;
}

// null for the default type, as older loaders expect.
json rope_scaling_of(const RopeConfig& rope) {
  if (rope.type == RopeType::plain) return nullptr;
  json scaling = {{"type", name(rope.type)}, {"rope_type", name(rope.type)}, {"factor", rope.factor}};
  if (rope.type == RopeType::llama3) {
    scaling["low_freq_factor"] = rope.low_freq_factor;
    scaling["high_freq_factor"] = rope.high_freq_factor;
    scaling["original_max_position_embeddings"] = rope.original_max_position_embeddings;
  }
  return scaling;
}

// What mlx-lm's classes have no setting for.
void refuse_for_mlx(const ModelConfig& config, const std::string& where) {
  const bool qwen = config.architecture != Architecture::llama;
  if (qwen && config.attention_bias) {
    fail(ErrorCode::not_supported, where, ": attention_bias = true, mlx-lm has no biases in ",
         name(config.architecture));
  }
  if (config.rope.partial_rotary_factor != 1.0) {
    fail(ErrorCode::not_supported, where, ": partial_rotary_factor is ", config.rope.partial_rotary_factor,
         ", mlx-lm rotates all of head_dim in ", name(config.architecture));
  }
}

}  // namespace

const char* name(Architecture architecture) {
  switch (architecture) {
    case Architecture::llama:
      return "llama";
    case Architecture::qwen3:
      return "qwen3";
    case Architecture::qwen3_moe:
      return "qwen3_moe";
  }
  return "unknown";
}

const char* name(RopeType type) {
  switch (type) {
    case RopeType::plain:
      return "default";
    case RopeType::linear:
      return "linear";
    case RopeType::llama3:
      return "llama3";
  }
  return "unknown";
}

ModelConfig ModelConfig::parse(const json& source, const std::string& where) {
  const Reader in(source, where);
  ModelConfig config;
  config.architecture = architecture_of(in);
  refuse_unsupported(in, config.architecture);
  config.vocab_size = in.size("vocab_size");
  config.hidden_size = in.size("hidden_size");
  config.intermediate_size = in.size("intermediate_size");
  config.num_hidden_layers = in.size("num_hidden_layers");
  config.max_position_embeddings = in.size("max_position_embeddings", 0);
  config.rms_norm_eps = in.positive("rms_norm_eps");
  config.tie_word_embeddings = in.boolean("tie_word_embeddings", false);
  config.attention_bias = in.boolean("attention_bias", false);
  config.mlp_bias = in.boolean("mlp_bias", false);
  read_heads(in, config);
  config.rope = read_rope(in, where);
  check_rotary_dims(in, config);
  read_experts(in, config);
  read_token_ids(in, config);
  config.dtype = dtype_of_config(in);
  return config;
}

json to_mlx_config(const json& source, const json& quantization, const std::string& where) {
  const ModelConfig config = ModelConfig::parse(source, where);
  refuse_for_mlx(config, where);
  json out = source;
  out["head_dim"] = config.head_dim;
  out["num_key_value_heads"] = config.num_key_value_heads;
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  out["rope_theta"] = config.rope.theta;
  out["rope_scaling"] = rope_scaling_of(config.rope);
  if (config.architecture != Architecture::llama && config.max_position_embeddings == 0) {
    out["max_position_embeddings"] = kQwenPositions;
  }
  if (config.architecture == Architecture::qwen3_moe) {
    out["num_experts"] = config.num_experts;
    out["norm_topk_prob"] = config.norm_topk_prob;
    out["decoder_sparse_step"] = config.decoder_sparse_step;
    out["mlp_only_layers"] = config.mlp_only_layers;
  }
  out["quantization"] = quantization;
  out["quantization_config"] = quantization;
  return out;
}

bool ModelConfig::is_sparse(std::int64_t layer) const {
  const bool dense =
      std::find(mlp_only_layers.begin(), mlp_only_layers.end(), layer) != mlp_only_layers.end();
  return !dense && num_experts > 0 && (layer + 1) % decoder_sparse_step == 0;
}

std::int64_t ModelConfig::rotary_dims() const {
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
}

std::vector<float> rope_inverse_frequencies(const ModelConfig& config) {
  const std::int64_t dims = config.rotary_dims();
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
    frequencies.push_back(
        static_cast<float>(scaled_frequency(std::pow(config.rope.theta, exponent), config.rope)));
  }
  return frequencies;
}

}  // namespace mixtape
