#include "mixtape/io/gguf_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/architecture.h"
#include "mixtape/io/gguf_keys.h"
#include "mixtape/io/gguf_rope.h"

namespace mixtape {
namespace {

using nlohmann::json;
using namespace gguf_key;

// Further keys below "<architecture>." that are read here for every architecture, or that don't change the model
// (those of experts: where there are none).
constexpr std::array<std::string_view, 4> kOtherKeys = {"expert_count", "expert_feed_forward_length",
                                                        "expert_used_count", "tensor_data_layout"};

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
         is_gguf_rope_key(key) || is_among(architecture.gguf_keys, key);
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

// That of the matrices; where they are blocks bf16, which models are made in.
const char* torch_dtype(const GgufFile& file) {
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding != nullptr && embedding->type == GgufType::f32) return "float32";
  if (embedding != nullptr && embedding->type == GgufType::f16) return "float16";
  return "bfloat16";
}

}  // namespace

json gguf_config_json(const GgufFile& file) {
  const Architecture& architecture = architecture_of(file);
  const GgufKeys keys(file);
  const std::int64_t hidden = keys.positive(kHidden.key), heads = keys.positive(kHeads.key);
  const std::int64_t dim = head_dim(keys, hidden, heads), vocab = vocab_size(keys);
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
      {"hidden_act", "silu"},
      {"tie_word_embeddings", file.find_tensor("output.weight") == nullptr},
      {"torch_dtype", torch_dtype(file)},
  };
  read_gguf_rope(keys, architecture, dim, config);
  if (architecture.read_gguf) architecture.read_gguf(keys, config);
  add_token_ids(keys, vocab, config);
  refuse_unknown_keys(keys, architecture);
  return config;
}

}  // namespace mixtape
