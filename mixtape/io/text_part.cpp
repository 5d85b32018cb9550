#include "mixtape/io/text_part.h"

#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/architecture.h"

namespace mixtape {
namespace {

using nlohmann::json;

// Keys that directories keep outside of text_config.
constexpr const char* kShared[] = {
    "bos_token_id",        "eos_token_id",        "pad_token_id", "dtype",
    "torch_dtype",         "vocab_size",          "quantization", "quantization_config",
    "tie_word_embeddings", "transformers_version"};

const Architecture* text_architecture(const json& config) {
  const json type = config.is_object() ? config.value("model_type", json()) : json();
  for (const Architecture* a : architectures()) {
    if (!a->multimodal.empty() && type == a->multimodal) return a;
  }
  return nullptr;
}

bool lacks(const json& object, const std::string& key) { return object.value(key, json()).is_null(); }

}  // namespace

std::optional<json> text_config(const json& config, const std::string& where) {
  const Architecture* architecture = text_architecture(config);
  if (architecture == nullptr || !lacks(config, "num_hidden_layers")) return std::nullopt;
  json text = config.value("text_config", json());
  if (!text.is_object())
    fail(ErrorCode::format, where, ": text_config is ", text.dump(), ", expected an object");
  for (const char* key : kShared) {
    if (lacks(text, key) && !lacks(config, key)) text[key] = config[key];
  }
  const json defaults = json::parse(architecture->text_defaults);
  for (const auto& [key, value] : defaults.items()) {
    if (lacks(text, key)) text[key] = value;
  }
  text["model_type"] = architecture->model_type;
  text["architectures"] = {architecture->class_name};
  return std::make_optional(std::move(text));
}

std::optional<std::string> text_tensor(const std::string& name) {
  const std::string inner = "model.language_model.", outer = "language_model.";
  if (name.starts_with(inner)) return "model." + name.substr(inner.size());
  if (name.starts_with(outer)) return name.substr(outer.size());
  return name.starts_with("lm_head.") ? std::optional(name) : std::nullopt;
}

std::string part_of(const std::string& name) {
  const std::string front = "model.";
  const std::size_t begin = name.starts_with(front) ? front.size() : 0;
  return name.substr(begin, name.find('.', begin) - begin);
}

std::string text_notice(const std::set<std::string>& left_out) {
  std::string parts;
  for (const std::string& part : left_out) parts += (parts.empty() ? "; left out: " : ", ") + part;
  return "a multimodal model, of which the text part is read" + parts;
}

}  // namespace mixtape
