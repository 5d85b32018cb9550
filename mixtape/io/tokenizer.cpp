#include "mixtape/io/tokenizer.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "mixtape/core/error.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_added.h"
#include "mixtape/io/tokenizer_bpe.h"
#include "mixtape/io/tokenizer_files.h"
#include "mixtape/io/tokenizer_parts.h"

namespace mixtape {

using nlohmann::json;

struct Tokenizer::Parts {
  explicit Parts(const json& spec)
      : bpe(part::member(spec, "model")),
        normalize(make_normalizer(spec.value("normalizer", json()))),
        pre_tokenize(make_pre_tokenizer(spec.value("pre_tokenizer", json()))),
        decode(make_decoder(spec.value("decoder", json()))),
        around(make_template(spec.value("post_processor", json()))) {
    for (const auto& [text, id] : bpe.vocabulary()) name_id(id, text);
  }

  void name_id(std::uint32_t id, const std::string& text) {
    if (id >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = text;
  }

  std::optional<std::uint32_t> find(std::string_view text) const {
    const auto added = added_ids.find(text);
    if (added != added_ids.end()) return added->second;
    const auto found = bpe.vocabulary().find(text);
    return found == bpe.vocabulary().end() ? std::nullopt : std::optional(found->second);
  }

  void add(const AddedToken& token);
  void add_special(AddedToken token);
  void encode_words(const std::string& normalized, bool at_start, std::vector<std::uint32_t>& ids) const;
  void encode_section(std::string_view text, bool at_start, std::vector<std::uint32_t>& ids) const;

  Bpe bpe;
  Normalizer normalize;
  PreTokenizer pre_tokenize;
  Decoder decode;
  Template around;
  AddedTokenFinder raw_tokens, normalized_tokens;
  Vocabulary added_ids;
  std::vector<std::optional<std::string>> tokens;          // by id
  std::unordered_map<std::uint32_t, std::string> decoded;  // added tokens that decode to another text
  std::vector<bool> special;                               // by id, may be shorter
  std::optional<std::uint32_t> bos, eos;
};

void Tokenizer::Parts::add(const AddedToken& token) {
  const auto known = find(token.content);
  const bool taken = token.id < tokens.size() && tokens[token.id] && *tokens[token.id] != token.content;
  if ((known && *known != token.id) || taken) {
    fail(ErrorCode::format, "tokenizer: added token ", json(token.content).dump(), " has id ", token.id,
         known ? str(", its id in the vocabulary is ", *known)
               : ", which belongs to " + json(*tokens[token.id]).dump());
  }
  added_ids.emplace(token.content, token.id);
  name_id(token.id, token.content);
  if (special.size() <= token.id) special.resize(token.id + 1);
  special[token.id] = token.special;
  if (token.normalized) {
    const std::string written = normalize(token.content);
    normalized_tokens.add(token, written);
    if (written != token.content) decoded[token.id] = written;
  } else {
    raw_tokens.add(token, token.content);
  }
}

// A token of the vocabulary becomes special; one that isn't there gets the next id.
void Tokenizer::Parts::add_special(AddedToken token) {
  if (token.content.empty() || added_ids.contains(token.content)) return;
  token.id = find(token.content).value_or(static_cast<std::uint32_t>(tokens.size()));
  add(token);
}

void Tokenizer::Parts::encode_words(const std::string& normalized, bool at_start,
                                    std::vector<std::uint32_t>& ids) const {
  Pieces pieces;
  pieces.at_start = at_start;
  pieces.add(normalized);
  pre_tokenize(pieces).for_each([&](std::string_view word) { bpe.encode(word, ids); });
}

void Tokenizer::Parts::encode_section(std::string_view text, bool at_start,
                                      std::vector<std::uint32_t>& ids) const {
  const std::string normalized = normalize(std::string(text));
  for (const AddedTokenFinder::Section& section : normalized_tokens.cut(normalized)) {
    if (section.id) {
      ids.push_back(*section.id);
    } else {
      encode_words(std::string(section.text), at_start, ids);
    }
    at_start = false;
  }
}

namespace {

std::uint32_t checked_id(const json& id, const std::string& token) {
  if (!part::is_id(id)) {
    fail(ErrorCode::format, "tokenizer: the id of added token ", json(token).dump(), " is ", id.dump());
  }
  return id.get<std::uint32_t>();
}

std::vector<AddedToken> tokens_of_file(const json& spec) {
  std::vector<AddedToken> tokens;
  const json entries = spec.value("added_tokens", json::array());
  for (const json& entry : entries) {
    const std::string content = part::text(entry, "content");
    tokens.push_back(read_added_token(entry, checked_id(part::member(entry, "id"), content)));
  }
  return tokens;
}

// The configuration lists the same tokens again, by id, and sometimes more.
std::vector<AddedToken> tokens_of_config(const json& config) {
  std::vector<AddedToken> tokens;
  const json entries = config.value("added_tokens_decoder", json::object());
  for (const auto& [key, entry] : entries.items()) {
    std::uint32_t id = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || id > part::kMaxId) {
      fail(ErrorCode::format, "tokenizer_config: added_tokens_decoder has the id ", json(key).dump());
    }
    tokens.push_back(read_added_token(entry, id));
  }
  return tokens;
}

// A token of the configuration is its text or an object with "content".
std::string token_text(const json& token, const std::string& key) {
  if (token.is_object()) return part::text(token, "content");
  if (!token.is_string())
    fail(ErrorCode::format, "tokenizer_config: \"", key, "\" is ", token.dump(), ", expected a token");
  return token.get<std::string>();
}

std::optional<std::string> token_named(const json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return std::nullopt;
  return token_text(*found, key);
}

AddedToken special_token(const json& spec, const std::string& key) {
  AddedToken token;
  if (spec.is_object()) token = read_added_token(spec, 0);
  token.content = token_text(spec, key);
  token.special = true;
  if (!spec.is_object()) token.normalized = false;
  return token;
}

// Every special token that the configuration names, in the order in which transformers gives out ids.
std::vector<AddedToken> special_tokens(const json& config) {
  std::vector<AddedToken> tokens;
  for (const char* key :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = config.find(key);
    if (found != config.end() && !found->is_null()) tokens.push_back(special_token(*found, key));
  }
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const json more = config.value(key, json());
    if (!more.is_structured()) continue;
    for (const auto& [name, token] : more.items()) tokens.push_back(special_token(token, key));
  }
  return tokens;
}

}  // namespace

Tokenizer Tokenizer::from_json(const json& tokenizer, const json& config) {
  if (!tokenizer.is_object()) fail(ErrorCode::format, "tokenizer: expected a JSON object");
  auto parts = std::make_shared<Parts>(tokenizer);
  for (const AddedToken& token : tokens_of_file(tokenizer)) parts->add(token);
  if (!config.is_object()) return Tokenizer(std::move(parts));
  for (const AddedToken& token : tokens_of_config(config)) {
    if (!parts->added_ids.contains(token.content)) parts->add(token);
  }
  for (const AddedToken& token : special_tokens(config)) parts->add_special(token);
  if (const auto text = token_named(config, "bos_token")) parts->bos = parts->find(*text);
  if (const auto text = token_named(config, "eos_token")) parts->eos = parts->find(*text);
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::load(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "tokenizer.json";
  const json spec = read_json(file);
  const json settings = read_tokenizer_config(directory);
  try {
    return from_json(spec, settings);
  } catch (const Error& error) {
    fail(error.code(), file.string(), ": ", error.what());
  }
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  require_utf8(text, "tokenizer: text");
  std::vector<std::uint32_t> ids;
  if (add_special) ids = parts_->around.before;
  bool at_start = true;
  for (const AddedTokenFinder::Section& section : parts_->raw_tokens.cut(text)) {
    if (section.id) {
      ids.push_back(*section.id);
    } else {
      parts_->encode_section(section.text, at_start, ids);
    }
    at_start = false;
  }
  if (add_special) ids.insert(ids.end(), parts_->around.after.begin(), parts_->around.after.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= vocab_size() || !parts_->tokens[ids[i]]) {
      fail(ErrorCode::index_out_of_range, "tokenizer: no token has the id ", ids[i], " found at position ",
           i);
    }
    if (skip_special && is_special(ids[i])) continue;
    const auto found = parts_->decoded.find(ids[i]);
    tokens.push_back(found == parts_->decoded.end() ? *parts_->tokens[ids[i]] : found->second);
  }
  std::string text;
  for (const std::string& piece : parts_->decode(std::move(tokens))) text += piece;
  return text;
}

std::size_t Tokenizer::vocab_size() const { return parts_->tokens.size(); }

std::optional<std::uint32_t> Tokenizer::id_of(std::string_view token) const { return parts_->find(token); }

const std::string& Tokenizer::token(std::uint32_t id) const {
  if (id >= vocab_size() || !parts_->tokens[id]) {
    fail(ErrorCode::index_out_of_range, "tokenizer: no token has the id ", id);
  }
  return *parts_->tokens[id];
}

bool Tokenizer::is_special(std::uint32_t id) const {
  return id < parts_->special.size() && parts_->special[id];
}

const std::vector<std::uint32_t>& Tokenizer::prefix() const { return parts_->around.before; }
std::optional<std::uint32_t> Tokenizer::bos_id() const { return parts_->bos; }
std::optional<std::uint32_t> Tokenizer::eos_id() const { return parts_->eos; }

}  // namespace mixtape
