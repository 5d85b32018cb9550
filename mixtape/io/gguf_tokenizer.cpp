#include "mixtape/io/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_pre_tokenizer.h"
#include "mixtape/io/gguf_token_type.h"
#include "mixtape/io/text_utf8.h"

namespace mixtape {
namespace {

using nlohmann::json;

const GgufPreTokenizer& pre_tokenizer(const GgufFile& file) {
  const std::span<const GgufPreTokenizer> known = gguf_pre_tokenizers();
  const std::string_view name = file.string("tokenizer.ggml.pre");
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const GgufPreTokenizer& p) { return p.name == name; });
  if (found == known.end()) {
    fail(ErrorCode::not_supported, file.where(), ": 'tokenizer.ggml.pre' is '", name, "', expected one of ",
         gguf_pre_tokenizer_names());
  }
  return *found;
}

// The vocabulary with its types, checked, and the tokenizer's settings.
class Source {
 public:
  explicit Source(const GgufFile& source)
      : file(source),
        model(source.string("tokenizer.ggml.model")),
        tokens(source.strings("tokenizer.ggml.tokens")) {
    if (model != "gpt2" && model != "llama") {
      fail(ErrorCode::not_supported, where(), ": 'tokenizer.ggml.model' is '", model,
           "', expected gpt2 or llama");
    }
    types_.assign(tokens.size(), std::int64_t{GgufTokenType::normal});
    if (file.has("tokenizer.ggml.token_type")) types_ = file.integers("tokenizer.ggml.token_type");
    require_per_token("token_type", types_.size());
    for (std::size_t id = 0; id < tokens.size(); ++id) add_token(static_cast<std::uint32_t>(id));
  }

  std::string where() const { return file.where(); }
  bool is_spm() const { return model == "llama"; }
  std::int64_t type(std::uint32_t id) const { return types_[id]; }

  std::optional<std::uint32_t> id_of(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  // The id under "tokenizer.ggml.<name>_token_id".
  std::optional<std::uint32_t> special_id(const char* name) const {
    const std::string key = str("tokenizer.ggml.", name, "_token_id");
    if (!file.has(key)) return std::nullopt;
    const std::int64_t id = file.integer(key);
    if (id < 0 || id >= std::ssize(tokens)) {
      fail(ErrorCode::format, where(), ": '", key, "' is ", id, ", expected below the vocabulary size ",
           tokens.size());
    }
    return static_cast<std::uint32_t>(id);
  }

  bool flag(const char* name, bool fallback) const {
    const std::string key = str("tokenizer.ggml.", name);
    return file.has(key) ? file.boolean(key) : fallback;
  }
  bool adds_bos() const { return flag("add_bos_token", is_spm() || pre_tokenizer(file).adds_bos); }
  bool adds_eos() const { return flag("add_eos_token", false); }
  bool adds_space() const { return flag("add_space_prefix", is_spm()); }

  void require_per_token(const char* name, std::size_t count) const {
    if (count == tokens.size()) return;
    fail(ErrorCode::format, where(), ": 'tokenizer.ggml.", name, "' has ", count,
         " entries, expected one for each of the ", tokens.size(), " tokens");
  }

  const GgufFile& file;
  const std::string_view model;
  const std::vector<std::string_view> tokens;

 private:
  void add_token(std::uint32_t id) {
    require_utf8(tokens[id], str(where(), ": token ", id));
    if (types_[id] < GgufTokenType::normal || types_[id] > GgufTokenType::byte) {
      fail(ErrorCode::format, where(), ": token ", id, " has type ", types_[id], ", expected 1 to 6");
    }
    const auto [entry, is_new] = ids_.emplace(tokens[id], id);
    if (!is_new) {
      fail(ErrorCode::format, where(), ": tokens ", entry->second, " and ", id, " are both ",
           json(tokens[id]).dump());
    }
  }

  std::vector<std::int64_t> types_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
};

json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
}

json split_by(std::string_view pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

json added_tokens(const Source& source) {
  json added = json::array();
  for (std::uint32_t id = 0; id < source.tokens.size(); ++id) {
    const std::int64_t type = source.type(id);
    if (type != GgufTokenType::control && type != GgufTokenType::unknown &&
        type != GgufTokenType::user_defined)
      continue;
    added.push_back({{"id", id},
                     {"content", source.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", type != GgufTokenType::user_defined}});
  }
  return added;
}

// Puts BOS before and EOS after the text, as the file asks.
json post_processor(const Source& source) {
  json single = json::array(), tokens = json::object();
  const auto add = [&](const char* name) {
    const auto id = source.special_id(name);
    if (!id)
      fail(ErrorCode::format, source.where(), ": add_", name, "_token is true, but there is no ", name,
           "_token_id");
    const std::string text(source.tokens[*id]);
    single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0u}}}});
    tokens[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
  };
  if (source.adds_bos()) add("bos");
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0u}}}});
  if (source.adds_eos()) add("eos");
  if (tokens.empty()) return nullptr;
  json pair = single;
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1u}}}});
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

json bpe_model(const Source& source, json merges) {
  json vocab = json::object();
  for (std::uint32_t id = 0; id < source.tokens.size(); ++id) vocab[std::string(source.tokens[id])] = id;
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

// "left right", where only the first byte of `left` may itself be a space.
json listed_merges(const Source& source) {
  json merges = json::array();
  for (const std::string_view merge : source.file.strings("tokenizer.ggml.merges")) {
    const std::size_t space = merge.find(' ', 1);
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = space == merge.npos ? "" : merge.substr(space + 1);
    if (!source.id_of(left) || !source.id_of(right) || !source.id_of(std::string(left).append(right))) {
      fail(ErrorCode::format, source.where(), ": merge ", merges.size(), " is '", utf8_lossy(merge),
           "', expected two tokens whose join is a token");
    }
    merges.push_back({left, right});
  }
  return merges;
}

struct ScoredMerge {
  double score;
  std::string_view token;
  std::size_t left_length, right_length;  // in code points
  std::string_view left, right;
};

// Every way to cut `token` into two tokens, those of lower ids first.
void add_cuts(const Source& source, std::string_view token, double score, std::vector<ScoredMerge>& merges) {
  std::vector<std::tuple<std::uint32_t, std::uint32_t, ScoredMerge>> cuts;
  const std::size_t length = count_code_points(token);
  std::size_t cut = 0;
  for (std::size_t left_length = 1; left_length < length; ++left_length) {
    cut += first_code_point(token.substr(cut)).size;
    const std::string_view left = token.substr(0, cut), right = token.substr(cut);
    const auto left_id = source.id_of(left), right_id = source.id_of(right);
    if (left_id && right_id) {
      cuts.push_back({*left_id, *right_id, {score, token, left_length, length - left_length, left, right}});
    }
  }
  std::sort(cuts.begin(), cuts.end(), [](const auto& a, const auto& b) {
    return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
  });
  for (const auto& entry : cuts) merges.push_back(std::get<2>(entry));
}

// Of joins with equal scores SentencePiece takes the leftmost, ranked merges the one of better rank. For runs of one
// character (llama's spaces, all of one score) it is the same: the parts of a run shrink from left to right, and the
// longer left part ranks first.
void require_distinct(const Source& source, const std::vector<ScoredMerge>& merges) {
  const ScoredMerge* last = nullptr;
  for (const ScoredMerge& merge : merges) {
    if (is_run(merge.token)) continue;
    if (last && last->score == merge.score && last->token != merge.token) {
      fail(ErrorCode::not_supported, source.where(), ": 'tokenizer.ggml.scores' gives ",
           json(last->token).dump(), " and ", json(merge.token).dump(), " the same score ", merge.score,
           ", which the ranked merges of a tokenizer.json can't express; expected a file with the "
           "tokenizer's own "
           "scores, or the model's directory");
    }
    last = &merge;
  }
}

// SentencePiece merges the adjacent pair whose join has the best score. As ranks: by falling score, then the
// longer left part, then the longer right part.
json scored_merges(const Source& source) {
  const std::vector<double> scores = source.file.numbers("tokenizer.ggml.scores");
  source.require_per_token("scores", scores.size());
  std::vector<ScoredMerge> merges;
  for (std::uint32_t id = 0; id < source.tokens.size(); ++id) {
    if (std::isnan(scores[id]))
      fail(ErrorCode::format, source.where(), ": the score of token ", id, " is NaN");
    if (source.type(id) == GgufTokenType::normal) add_cuts(source, source.tokens[id], scores[id], merges);
  }
  std::stable_sort(merges.begin(), merges.end(), [](const ScoredMerge& a, const ScoredMerge& b) {
    return std::tie(a.score, a.left_length, a.right_length) >
           std::tie(b.score, b.left_length, b.right_length);
  });
  require_distinct(source, merges);
  json pairs = json::array();
  for (const ScoredMerge& merge : merges) pairs.push_back({merge.left, merge.right});
  return pairs;
}

void add_byte_level(const Source& source, json& out) {
  const GgufPreTokenizer& pre = pre_tokenizer(source.file);
  if (source.adds_space()) {
    fail(ErrorCode::not_supported, source.where(),
         ": add_space_prefix is true, expected false for a gpt2 tokenizer");
  }
  json steps = json::array();
  for (const std::string_view pattern : pre.patterns) steps.push_back(split_by(pattern));
  steps.push_back(byte_level());
  out["normalizer"] = pre.nfc ? json{{"type", "NFC"}} : json();
  out["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  out["decoder"] = byte_level();
  out["model"] = bpe_model(source, listed_merges(source));
  out["model"]["ignore_merges"] = pre.ignore_merges;
}

void add_sentence_piece(const Source& source, json& out) {
  json normalizers = json::array(), decoders = json::array();
  if (source.adds_space()) normalizers.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
  normalizers.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}});
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (source.adds_space())
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1u}, {"stop", 0u}});
  out["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
  out["pre_tokenizer"] = nullptr;
  out["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  out["model"] = bpe_model(source, scored_merges(source));
  if (const auto id = source.special_id("unknown")) out["model"]["unk_token"] = source.tokens[*id];
  out["model"]["fuse_unk"] = true;
  out["model"]["byte_fallback"] = true;
}

std::string_view template_text(const GgufFile& file, const std::string& key) {
  const std::string_view text = file.string(key);
  require_utf8(text, file.where() + ": " + key);
  return text;
}

// One text, or with those that have names ("tool_use") a list of {"name", "template"}; null if there is none.
json chat_templates(const GgufFile& file) {
  const std::string key = "tokenizer.chat_template", prefix = key + '.';
  json list = json::array();
  for (const auto& [name, value] : file.metadata()) {
    if (!name.starts_with(prefix)) continue;
    list.push_back({{"name", name.substr(prefix.size())}, {"template", template_text(file, name)}});
  }
  if (!file.has(key)) return list.empty() ? json() : list;
  if (list.empty()) return template_text(file, key);
  list.push_back({{"name", "default"}, {"template", template_text(file, key)}});
  return list;
}

}  // namespace

json gguf_tokenizer_json(const GgufFile& file) {
  const Source source(file);
  json out = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  source.is_spm() ? add_sentence_piece(source, out) : add_byte_level(source, out);
  out["added_tokens"] = added_tokens(source);
  out["post_processor"] = post_processor(source);
  return out;
}

json gguf_tokenizer_config_json(const GgufFile& file) {
  const Source source(file);
  json out = {{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"add_bos_token", source.adds_bos()},
              {"add_eos_token", source.adds_eos()},
              {"clean_up_tokenization_spaces", false}};
  constexpr std::pair<const char*, const char*> kTokens[] = {
      {"bos", "bos_token"}, {"eos", "eos_token"}, {"unknown", "unk_token"}, {"padding", "pad_token"}};
  for (const auto& [key, name] : kTokens) {
    if (const auto id = source.special_id(key)) out[name] = source.tokens[*id];
  }
  json templates = chat_templates(file);
  if (!templates.is_null()) out["chat_template"] = std::move(templates);
  return out;
}

}  // namespace mixtape
