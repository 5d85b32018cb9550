#include "mixtape/io/gguf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <string>
#include <vector>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

using nlohmann::json;

struct ArchitectureNames {
  std::string_view gguf;
  const char* model_type;
  const char* class_name;
};
constexpr std::array kArchitectures = {
    ArchitectureNames{"llama", "llama", "LlamaForCausalLM"},
    ArchitectureNames{"qwen3", "qwen3", "Qwen3ForCausalLM"},
    ArchitectureNames{"qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM"},
};

// Keys below "<architecture>." that are read here or that don't change the model.
constexpr std::array<std::string_view, 21> kKnownKeys = {
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
};

constexpr std::int64_t kMaxSize = 1 << 21;  // so that a product of three sizes fits 63 bits
constexpr std::int64_t kMaxPosition = 1 << 30;

// The keys of the file's architecture, by what follows "<architecture>.".
class Keys {
 public:
  explicit Keys(const GgufFile& source)
      : file(source), prefix_(str(source.string("general.architecture"), ".")) {}

  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) const { return file.has(full(key)); }
  std::string_view prefix() const { return prefix_; }

  // 1 to `most`; the fallback, where one is given, is for an absent key.
  std::int64_t positive(std::string_view key, std::int64_t fallback = 0, std::int64_t most = kMaxSize) const {
    if (fallback > 0 && !has(key)) return fallback;
    const std::int64_t found = file.integer(full(key));
    if (found < 1 || found > most) fail_value(key, found, str("1 to ", most));
    return found;
  }

  // The shortest decimal that is the same f32: 1e-05 rather than 9.999999747378752e-06.
  double number(std::string_view key) const {
    const double exact = file.number(full(key));
    if (!std::isfinite(exact) || exact <= 0) fail_value(key, exact, "a positive number");
    char text[64];
    const auto written = std::to_chars(text, text + sizeof text, static_cast<float>(exact));
    double shortest = 0;
    std::from_chars(text, written.ptr, shortest);
    return file.find(full(key))->type == GgufValueType::f32 ? shortest : exact;
  }

  template <class T>
  [[noreturn]] void fail_value(std::string_view key, const T& found, const std::string& wanted) const {
    fail(ErrorCode::format, file.where(), ": '", full(key), "' is ", found, ", expected ", wanted);
  }

  const GgufFile& file;

 private:
  std::string prefix_;
};

const ArchitectureNames& architecture(const GgufFile& file) {
  const std::string_view found = file.string("general.architecture");
  const auto* names = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                   [&](const ArchitectureNames& known) { return known.gguf == found; });
  if (names == kArchitectures.end()) {
    fail(ErrorCode::not_supported, file.where(), ": architecture is '", found,
         "', expected llama, qwen3 or qwen3moe");
  }
  return *names;
}

void refuse_unknown_keys(const Keys& keys) {
  for (const auto& [key, value] : keys.file.metadata()) {
    if (!key.starts_with(keys.prefix())) continue;
    const std::string_view rest = std::string_view(key).substr(keys.prefix().size());
    if (std::find(kKnownKeys.begin(), kKnownKeys.end(), rest) == kKnownKeys.end()) {
      fail(ErrorCode::not_supported, keys.file.where(), ": key '", key,
           "' may change the model and is not supported");
    }
  }
  if (keys.file.has("split.count") && keys.file.integer("split.count") > 1) {
    fail(ErrorCode::not_supported, keys.file.where(), ": one of ", keys.file.integer("split.count"),
         " files of a split model, expected a single file");
  }
}

std::int64_t vocab_size(const Keys& keys) {
  const GgufTensor* table = keys.file.find_tensor("token_embd.weight");
  if (table == nullptr) fail(ErrorCode::format, keys.file.where(), ": lacks tensor 'token_embd.weight'");
  const std::int64_t rows = table->shape.rank() == 2 ? table->shape[0] : 0;
  if (rows < 1) {
    fail(ErrorCode::format, keys.file.where(), ": tensor 'token_embd.weight' has shape ", table->shape,
         ", expected [vocabulary, hidden]");
  }
  if (keys.has("vocab_size")) {
    const std::int64_t stated = keys.positive("vocab_size");
    if (stated != rows) keys.fail_value("vocab_size", stated, str(rows, ", the rows of token_embd.weight"));
  }
  return rows;
}

std::int64_t head_dim(const Keys& keys, std::int64_t hidden, std::int64_t heads) {
  if (!keys.has("attention.key_length") && hidden % heads != 0) {
    keys.fail_value("attention.head_count", heads, str("a divisor of the hidden size ", hidden));
  }
  const std::int64_t dim = keys.positive("attention.key_length", hidden / heads);
  if (dim % 2 != 0) keys.fail_value("attention.key_length", dim, "an even head size");
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    const std::int64_t found = keys.positive(key, dim);
    if (found != dim) keys.fail_value(key, found, str("the head size ", dim));
  }
  return dim;
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
json llama3_scaling(const Keys& keys, const GgufTensor& tensor, double theta, std::int64_t dim) {
  if (tensor.shape != Shape{dim / 2} || tensor.type != GgufType::f32) {
    fail(ErrorCode::format, keys.file.where(), ": tensor 'rope_freqs.weight' is ", tensor.type, " ",
         tensor.shape, ", expected F32 ", Shape{dim / 2});
  }
  std::vector<float> divisors(static_cast<std::size_t>(dim / 2));
  decode_gguf_blocks(tensor.type, tensor.bytes, divisors);
  const double factor = static_cast<double>(divisors.back());
  const std::int64_t length = keys.positive("rope.scaling.original_context_length", 8192, kMaxPosition);
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

json rope_scaling(const Keys& keys, double theta, std::int64_t dim) {
  const std::string type(keys.has("rope.scaling.type") ? keys.file.string(keys.full("rope.scaling.type"))
                                                       : "");
  const bool older_linear = type.empty() && keys.has("rope.scale_linear");
  if (!type.empty() && type != "none" && type != "linear") {
    fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full("rope.scaling.type"), "' is '", type,
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
  const double factor = keys.number(older_linear ? "rope.scale_linear" : "rope.scaling.factor");
  return {{"rope_type", "linear"}, {"type", "linear"}, {"factor", factor}};
}

void add_token_ids(const Keys& keys, std::int64_t vocab, json& config) {
  for (const char* name : {"bos", "eos", "padding", "unknown", "eot", "eom"}) {
    const std::string key = str("tokenizer.ggml.", name, "_token_id");
    if (!keys.file.has(key)) continue;
    const std::int64_t id = keys.file.integer(key);
    if (id < 0 || id >= vocab) {
      fail(ErrorCode::format, keys.file.where(), ": '", key, "' is ", id,
           ", expected below the vocabulary size ", vocab);
    }
    if (name == std::string_view("bos") || name == std::string_view("eos"))
      config[str(name, "_token_id")] = id;
  }
  const GgufValue* tokens = keys.file.find("tokenizer.ggml.tokens");
  if (tokens != nullptr && tokens->count > static_cast<std::uint64_t>(vocab)) {
    fail(ErrorCode::format, keys.file.where(), ": 'tokenizer.ggml.tokens' has ", tokens->count,
         " entries, expected at most the ", vocab, " rows of token_embd.weight");
  }
}

void add_experts(const Keys& keys, std::string_view model_type, json& config) {
  if (model_type != "qwen3_moe") {
    const std::int64_t experts = keys.has("expert_count") ? keys.file.integer(keys.full("expert_count")) : 0;
    if (experts == 0) return;
    fail(ErrorCode::not_supported, keys.file.where(), ": '", keys.full("expert_count"), "' is ", experts,
         ", expected none for this architecture");
  }
  config["num_experts"] = keys.positive("expert_count");
  config["num_experts_per_tok"] = keys.positive("expert_used_count");
  config["moe_intermediate_size"] = keys.positive("expert_feed_forward_length");
  config["norm_topk_prob"] = true;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = json::array();
}

}  // namespace

json gguf_config_json(const GgufFile& file) {
  const ArchitectureNames& names = architecture(file);
  const Keys keys(file);
  const std::int64_t hidden = keys.positive("embedding_length"),
                     heads = keys.positive("attention.head_count");
  const std::int64_t dim = head_dim(keys, hidden, heads), vocab = vocab_size(keys);
  const double theta = keys.has("rope.freq_base") ? keys.number("rope.freq_base") : 10000.0;
  const bool is_llama = names.gguf == "llama";
  json config = {
      {"architectures", {names.class_name}},
      {"model_type", names.model_type},
      {"vocab_size", vocab},
      {"hidden_size", hidden},
      {"intermediate_size", keys.positive("feed_forward_length")},
      {"num_hidden_layers",
       keys.positive("block_count", 0, std::max<std::int64_t>(1, std::ssize(file.tensors())))},
      {"num_attention_heads", heads},
      {"num_key_value_heads", keys.positive("attention.head_count_kv", heads)},
      {"head_dim", dim},
      {"max_position_embeddings", keys.positive("context_length", 0, kMaxPosition)},
      {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon")},
      {"rope_theta", theta},
      {"rope_scaling", rope_scaling(keys, theta, dim)},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", file.find_tensor("output.weight") == nullptr},
      {"attention_bias", file.find_tensor("blk.0.attn_q.bias") != nullptr},
      {"torch_dtype", "bfloat16"},
  };
  if (is_llama) config["mlp_bias"] = file.find_tensor("blk.0.ffn_gate.bias") != nullptr;
  add_experts(keys, names.model_type, config);
  add_token_ids(keys, vocab, config);
  refuse_unknown_keys(keys);
  return config;
}

}  // namespace mixtape
