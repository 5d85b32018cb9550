#include "mixtape/io/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/architecture.h"
#include "mixtape/io/gguf_keys.h"
#include "mixtape/io/rope_config.h"

namespace mixtape {
namespace {

using nlohmann::json;
using namespace gguf_key;

// Further keys below "<architecture>." that are read here for every architecture, or that don't change the model
// (those of experts: where there are none).
constexpr std::array<std::string_view, 10> kOtherKeys = {
    "expert_count",       "expert_feed_forward_length",
    "expert_used_count",  "rope.scale_linear",
    kScalingFactor,       "rope.scaling.finetuned",
    kOriginalContext,     kScalingType,
    "tensor_data_layout", kRotaryDims,
};

constexpr std::int64_t kMaxPosition = 1 << 30;

const Architecture& architecture_of(const GgufFile& file) {
  const std::string_view name = file.string("general.architecture");
  const Architecture* found = find_gguf_architecture(name);
  if (found == nullptr) {
    fail(ErrorCode::not_supported, file.where(), ": architecture is '", name, "', expected one of ",
         gguf_architecture_names());
  }
  return *found;
}

bool has_key(std::span<const GgufKey> known, std::string_view key) {
  return std::any_of(known.begin(), known.end(), [&](const GgufKey& k) { return k.key == key; });
}

template <class Keys>
bool is_among(const Keys& known, std::string_view key) {
  return std::find(known.begin(), known.end(), key) != known.end();
}

bool is_known(std::string_view key, const Architecture& architecture) {
  return has_key(kWholes, key) || has_key(kReals, key) || is_among(kOtherKeys, key) ||
         is_among(architecture.gguf_keys, key);
}

// Files of models without experts may say so.
void refuse_experts(const GgufKeys& keys, const Architecture& architecture) {
  if (!keys.has("expert_count") || is_among(architecture.gguf_keys, "expert_count")) return;
  const std::int64_t experts = keys.file.integer(keys.full("expert_count"));
  if (experts == 0) return;
  fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full("expert_count"), "' is ", experts,
       ", expected none for this architecture");
}

void refuse_unknown_keys(const GgufKeys& keys, const Architecture& architecture) {
  refuse_experts(keys, architecture);
  for (const auto& [key, value] : keys.file.metadata()) {
    if (!key.starts_with(keys.prefix())) continue;
    const std::string_view rest = std::string_view(key).substr(keys.prefix().size());
    if (!is_known(rest, architecture)) {
      fail(ErrorCode::not_supported, keys.file.where(), ": key '", key,
           "' may change the model and is not supported");
    }
  }
  if (keys.file.has("split.count") && keys.file.integer("split.count") > 1) {
    fail(ErrorCode::not_supported, keys.file.where(), ": one of ", keys.file.integer("split.count"),
         " files of a split model, expected a single file");
  }
}

std::int64_t vocab_size(const GgufKeys& keys) {
  const GgufTensor* table = keys.file.find_tensor("token_embd.weight");
  if (table == nullptr) fail(ErrorCode::format, keys.file.where(), ": lacks tensor 'token_embd.weight'");
  const std::int64_t rows = table->shape.rank() == 2 ? table->shape[0] : 0;
  if (rows < 1) {
    fail(ErrorCode::format, keys.file.where(), ": tensor 'token_embd.weight' has shape ", table->shape,
         ", expected [vocabulary, hidden]");
  }
  const std::string_view key = kVocabulary.key;
  const std::int64_t stated = keys.positive(key, rows);
  if (stated != rows) keys.fail_value(key, stated, str(rows, ", the rows of token_embd.weight"));
  return rows;
}

std::int64_t head_dim(const GgufKeys& keys, std::int64_t hidden, std::int64_t heads) {
  if (!keys.has(kKeyLength.key) && hidden % heads != 0) {
    keys.fail_value(kHeads.key, heads, str("a divisor of the hidden size ", hidden));
  }
  const std::int64_t dim = keys.positive(kKeyLength.key, hidden / heads);
  if (dim % 2 != 0) keys.fail_value(kKeyLength.key, dim, "an even head size");
  const std::int64_t values = keys.positive(kValueLength.key, dim);
  if (values != dim) keys.fail_value(kValueLength.key, values, str("the head size ", dim));
  return dim;
}

// The least number that RopeConfig::rotary_dims makes the file's of.
double rotated_part(const GgufKeys& keys, const Architecture& architecture, std::int64_t dim) {
  const std::int64_t found = keys.positive(kRotaryDims, dim);
  const GgufArchitecture* written = find_gguf_architecture_of(architecture.model_type);
  if (found != dim && (written == nullptr || !written->has_partial_rope))
    keys.fail_value(kRotaryDims, found, str("the head size ", dim));
  if (found > dim || found % 2 != 0)
    keys.fail_value(kRotaryDims, found, str("an even number up to the head size ", dim));
  RopeConfig rope;
  rope.partial_rotary_factor = static_cast<double>(found) / static_cast<double>(dim);
  if (rope.rotary_dims(dim) == found) return rope.partial_rotary_factor;
  return std::nextafter(rope.partial_rotary_factor, 1.0);
}

// What the llama3 rule divides the frequency of pair i by, in f64.
double llama3_divisor(double theta, std::int64_t dim, std::int64_t i, double factor, double original_length) {
  constexpr double kLow = 1, kHigh = 4;
  const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
  const double turns = original_length * frequency / (2 * std::numbers::pi);
  const double smooth = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
  return 1 / ((1 - smooth) / factor + smooth);
}

// rope_freqs.weight holds only the divisors: accepted when the llama3 rule gives the same ones.
json llama3_scaling(const GgufKeys& keys, const GgufTensor& tensor, double theta, std::int64_t dim) {
  if (tensor.shape != Shape{dim / 2} || tensor.type != GgufType::f32) {
    fail(ErrorCode::format, keys.file.where(), ": tensor 'rope_freqs.weight' is ", tensor.type, " ",
         tensor.shape, ", expected F32 ", Shape{dim / 2});
  }
  std::vector<float> divisors(static_cast<std::size_t>(dim / 2));
  decode_gguf_blocks(tensor.type, tensor.bytes, divisors);
  const double factor = static_cast<double>(divisors.back());
  const std::int64_t length = keys.positive(kOriginalContext, 8192, kMaxPosition);
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const double wanted = llama3_divisor(theta, dim, i, factor, static_cast<double>(length));
    const double found = static_cast<double>(divisors[static_cast<std::size_t>(i)]);
    if (!(std::abs(found - wanted) <= 1e-5 * wanted)) {
      fail(ErrorCode::not_supported, keys.file.where(), ": rope_freqs.weight[", i, "] is ", found,
           ", expected ", wanted, ": only the llama3 rule with frequency factors 1 and 4 is supported");
    }
  }
  if (factor == 1) return nullptr;
  return {{"rope_type", "llama3"},  {"type", "llama3"},        {"factor", factor},
          {"low_freq_factor", 1.0}, {"high_freq_factor", 4.0}, {"original_max_position_embeddings", length}};
}

json rope_scaling(const GgufKeys& keys, double theta, std::int64_t dim) {
  const std::string type(keys.has(kScalingType) ? keys.file.string(keys.full(kScalingType)) : "");
  const bool older_linear = type.empty() && keys.has("rope.scale_linear");
  if (!type.empty() && type != "none" && type != "linear") {
    fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full(kScalingType), "' is '", type,
         "', expected none or linear");
  }
  const bool is_linear = type == "linear" || older_linear;
  const GgufTensor* divisors = keys.file.find_tensor("rope_freqs.weight");
  if (divisors != nullptr) {
    if (is_linear)
      fail(ErrorCode::not_supported, keys.file.where(), ": rope_freqs.weight together with linear scaling");
    return llama3_scaling(keys, *divisors, theta, dim);
  }
  if (!is_linear) return nullptr;
  const double factor = keys.number(older_linear ? "rope.scale_linear" : kScalingFactor);
  return {{"rope_type", "linear"}, {"type", "linear"}, {"factor", factor}};
}

// A text may end with more than one token: of a turn, of a message.
void add_stop_id(std::int64_t id, json& config) {
  json& ids = config["eos_token_id"];
  if (ids.is_null()) {
    ids = id;
  } else if (ids != id) {
    if (!ids.is_array()) ids = json::array({ids});
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

void add_token_ids(const GgufKeys& keys, std::int64_t vocab, json& config) {
  for (const char* name : {"bos", "eos", "padding", "unknown", "eot", "eom"}) {
    const std::string key = str("tokenizer.ggml.", name, "_token_id");
    if (!keys.file.has(key)) continue;
    const std::int64_t id = keys.file.integer(key);
    if (id < 0 || id >= vocab) {
      fail(ErrorCode::format, keys.file.where(), ": '", key, "' is ", id,
           ", expected below the vocabulary size ", vocab);
    }
    if (name == std::string_view("bos")) config["bos_token_id"] = id;
    if (std::string_view(name).starts_with('e')) add_stop_id(id, config);
  }
  const GgufValue* tokens = keys.file.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->count > static_cast<std::uint64_t>(vocab)) {
    fail(ErrorCode::format, keys.file.where(), ": 'tokenizer.ggml.tokens' has ", tokens->count,
         " entries, expected at most the ", vocab, " rows of token_embd.weight");
  }
}

}  // namespace

json gguf_config_json(const GgufFile& file) {
  const Architecture& architecture = architecture_of(file);
  const GgufKeys keys(file);
  const std::int64_t hidden = keys.positive(kHidden.key), heads = keys.positive(kHeads.key);
  const std::int64_t dim = head_dim(keys, hidden, heads), vocab = vocab_size(keys);
  const double theta = keys.has(kTheta.key) ? keys.number(kTheta.key) : 10000.0;
  json config = {
      {"architectures", {architecture.class_name}},
      {"model_type", architecture.model_type},
      {kVocabulary.config, vocab},
      {kHidden.config, hidden},
      {kWidth.config, keys.positive(kWidth.key)},
      {kLayers.config, keys.positive(kLayers.key, 0, std::max<std::int64_t>(1, std::ssize(file.tensors())))},
      {kHeads.config, heads},
      {kKvHeads.config, keys.positive(kKvHeads.key, heads)},
      {kKeyLength.config, dim},
      {kContext.config, keys.positive(kContext.key, 0, kMaxPosition)},
      {kEps.config, keys.number(kEps.key)},
      {kTheta.config, theta},
      {"rope_scaling", rope_scaling(keys, theta, dim)},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", file.find_tensor("output.weight") == nullptr},
      {"torch_dtype", "bfloat16"},
  };
  const double part = rotated_part(keys, architecture, dim);
  if (part != 1.0) config["partial_rotary_factor"] = part;
  if (architecture.read_gguf) architecture.read_gguf(keys, config);
  add_token_ids(keys, vocab, config);
  refuse_unknown_keys(keys, architecture);
  return config;
}

}  // namespace mixtape
