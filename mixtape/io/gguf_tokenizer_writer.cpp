#include "mixtape/io/gguf_tokenizer_writer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>

#include "mixtape/core/error.h"
#include "mixtape/io/gguf_pre_tokenizer.h"
#include "mixtape/io/gguf_scores.h"
#include "mixtape/io/gguf_token_type.h"
#include "mixtape/io/json_file.h"
#include "mixtape/io/tokenizer.h"

namespace mixtape {
namespace {

using nlohmann::json;

const json kNull;

// The member, or null.
const json& member(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : kNull;
}

bool is_type(const json& object, const char* type) { return member(object, "type") == type; }

// A component's own steps, or itself as the only one; none for null.
std::vector<json> steps_of(const json& component, const char* list) {
  if (component.is_null()) return {};
  if (is_type(component, "Sequence")) return member(component, list).get<std::vector<json>>();
  return {component};
}

class TokenizerWriter {
 public:
  TokenizerWriter(const json& tokenizer, const json& config, const ModelConfig& model,
                  const std::string& where, GgufMetadata& out)
      : json_(tokenizer),
        config_(config),
        model_(model),
        where_(where),
        out_(out),
        tokenizer_(Tokenizer::from_json(tokenizer, config)) {}

  void write() {
    const json& bpe = member(json_, "model");
    if (!is_type(bpe, "BPE")) unsupported("model", bpe);
    const bool is_spm = member(bpe, "byte_fallback") == true;
    list_tokens(is_spm);
    if (is_spm) {
      write_sentence_piece();
    } else {
      write_byte_level();
    }
    write_special_ids();
    write_templates();
  }

 private:
  [[noreturn]] void unsupported(const char* what, const json& found) const {
    std::string text = found.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 200) text = str(text.substr(0, 200), "...");
    fail(ErrorCode::not_supported, where_, ": tokenizer.json: ", what, " ", text,
         " has no counterpart in GGUF files");
  }

  // Texts and types of all ids; `types_` of those without a token stays unused.
  void list_tokens(bool is_spm) {
    const auto rows = static_cast<std::size_t>(model_.vocab_size);
    if (tokenizer_.vocab_size() > rows) {
      fail(ErrorCode::format, where_, ": the tokenizer has ", tokenizer_.vocab_size(),
           " tokens, expected at most the ", rows, " rows of the embedding");
    }
    texts_.resize(rows);
    types_.assign(rows, GgufTokenType::unused);
    for (const auto& [text, id] : member(member(json_, "model"), "vocab").items())
      set(id.get<std::size_t>(), text, is_spm ? type_of_piece(text) : GgufTokenType::normal);
    for (std::uint32_t id = 0; id < tokenizer_.vocab_size(); ++id) add_added(id, is_spm);
    name_unused();
  }

  void set(std::size_t id, const std::string& text, std::int32_t type) {
    texts_.at(id) = text;
    types_.at(id) = type;
  }

  static std::int32_t type_of_piece(const std::string& text) {
    const bool is_byte = text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
    return is_byte ? GgufTokenType::byte : GgufTokenType::normal;
  }

  // Tokens that the tokenizer cuts out before it merges.
  void add_added(std::uint32_t id, bool is_spm) {
    const std::optional<bool> special = added_special(id);
    if (!special) return;
    const std::string& text = tokenizer_.token(id);
    const bool is_unknown = is_spm && member(member(json_, "model"), "unk_token") == text;
    set(id, text,
        is_unknown ? GgufTokenType::unknown
        : *special ? GgufTokenType::control
                   : GgufTokenType::user_defined);
  }

  // Whether an added token is special; none for one of the vocabulary's own.
  std::optional<bool> added_special(std::uint32_t id) {
    if (tokenizer_.is_special(id)) return true;
    if (added_.empty()) {
      for (const json& token : member(json_, "added_tokens"))
        added_.insert(member(token, "id").get<std::uint32_t>());
      for (const auto& [key, token] : member(config_, "added_tokens_decoder").items())
        added_.insert(static_cast<std::uint32_t>(std::stoul(key)));
    }
    return added_.contains(id) ? std::optional(false) : std::nullopt;
  }

  void name_unused() {
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      if (types_[id] == GgufTokenType::unused) texts_[id] = str("[PAD", id, "]");
    }
    std::unordered_map<std::string, std::uint32_t> ids;
    for (std::size_t id = 0; id < texts_.size(); ++id) {
      const auto [entry, is_new] = ids.emplace(texts_[id], static_cast<std::uint32_t>(id));
      if (!is_new) {
        fail(ErrorCode::format, where_, ": tokens ", entry->second, " and ", id, " are both ",
             json(texts_[id]).dump());
      }
    }
  }

  std::vector<GgufMerge> merges() const {
    std::vector<GgufMerge> pairs;
    for (const json& merge : member(member(json_, "model"), "merges")) {
      if (merge.is_array()) {
        pairs.emplace_back(merge.at(0).get<std::string>(), merge.at(1).get<std::string>());
      } else {
        const std::string text = merge.get<std::string>();
        const std::size_t space = text.find(' ', 1);
        pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
      }
    }
    return pairs;
  }

  // Byte-level BPE.

  void write_byte_level() {
    const GgufPreTokenizer& pre = pre_tokenizer();
    write_vocabulary("gpt2", std::string(pre.name));
    std::vector<std::string> texts;
    for (const auto& [left, right] : merges()) texts.push_back(left + " " + right);
    out_.add("tokenizer.ggml.merges", gguf_array(texts));
  }

  // What each step cuts at; the last one must also map bytes to letters.
  std::vector<std::string> patterns() const {
    std::vector<std::string> found;
    const std::vector<json> steps = steps_of(member(json_, "pre_tokenizer"), "pretokenizers");
    for (const json& step : steps) {
      if (is_type(step, "Split") && member(step, "behavior") == "Isolated" &&
          member(step, "invert") != true) {
        found.push_back(member(member(step, "pattern"), "Regex").get<std::string>());
      } else if (is_type(step, "Digits") && member(step, "individual_digits") == true) {
        found.push_back(R"(\p{N})");
      } else if (is_type(step, "ByteLevel") && member(step, "add_prefix_space") != true) {
        if (member(step, "use_regex") != false) found.emplace_back(kGpt2Pattern);
      } else {
        unsupported("pre-tokenizer", step);
      }
    }
    if (steps.empty() || !is_type(steps.back(), "ByteLevel"))
      unsupported("pre-tokenizer", member(json_, "pre_tokenizer"));
    return found;
  }

  const GgufPreTokenizer& pre_tokenizer() const {
    const std::vector<std::string> cuts = patterns();
    const std::vector<json> normalizers = steps_of(member(json_, "normalizer"), "normalizers");
    const bool nfc = normalizers.size() == 1 && is_type(normalizers[0], "NFC");
    if (!normalizers.empty() && !nfc) unsupported("normalizer", member(json_, "normalizer"));
    const bool ignores = member(member(json_, "model"), "ignore_merges") == true;
    for (const GgufPreTokenizer& known : gguf_pre_tokenizers()) {
      if (std::equal(cuts.begin(), cuts.end(), known.patterns.begin(), known.patterns.end()) &&
          known.nfc == nfc && known.ignore_merges == ignores)
        return known;
    }
    fail(ErrorCode::not_supported, where_, ": tokenizer.json: its pre-tokenizer (", json(cuts).dump(),
         nfc ? ", NFC" : "", ignores ? ", ignore_merges" : "",
         ") has no name in GGUF files, expected one of ", gguf_pre_tokenizer_names());
  }

  // SentencePiece.

  void write_sentence_piece() {
    check_spaces();
    write_vocabulary("llama", "default");
    out_.add("tokenizer.ggml.scores", gguf_array(gguf_scores(texts_, types_, merges(), where_)));
    out_.add("tokenizer.ggml.add_space_prefix", adds_space_);
  }

  // Spaces become marks, one goes before the text where asked.
  void check_spaces() {
    for (const json& step : steps_of(member(json_, "normalizer"), "normalizers")) {
      const bool replaces = is_type(step, "Replace") && member(member(step, "pattern"), "String") == " " &&
                            member(step, "content") == kSpaceMark;
      const bool prepends = is_type(step, "Prepend") && member(step, "prepend") == kSpaceMark;
      if (!replaces && !prepends) unsupported("normalizer", step);
      adds_space_ |= prepends;
    }
    for (const json& step : steps_of(member(json_, "pre_tokenizer"), "pretokenizers")) {
      if (!is_type(step, "Metaspace") || member(step, "replacement") != kSpaceMark ||
          member(step, "split") == true)
        unsupported("pre-tokenizer", step);
      adds_space_ |= member(step, "prepend_scheme") != "never";
    }
  }

  // All.

  void write_vocabulary(const char* model, const std::string& pre) {
    out_.add("tokenizer.ggml.model", model);
    out_.add("tokenizer.ggml.pre", pre);
    out_.add("tokenizer.ggml.tokens", gguf_array(texts_));
    out_.add("tokenizer.ggml.token_type", gguf_array(types_));
  }

  // The id of a token that the configuration names, as a text or an object.
  std::optional<std::uint32_t> named(const char* key) const {
    const json& token = member(config_, key);
    const json& text = token.is_object() ? member(token, "content") : token;
    return text.is_string() ? tokenizer_.id_of(text.get<std::string>()) : std::nullopt;
  }

  void add_id(const char* name, std::optional<std::uint32_t> id) {
    if (id) out_.add(str("tokenizer.ggml.", name, "_token_id"), *id);
  }

  void write_special_ids() {
    const auto own_bos = tokenizer_.bos_id();
    const auto bos = own_bos ? own_bos : as_id(model_.bos_token_id);
    std::vector<std::uint32_t> ends;
    if (const auto eos = tokenizer_.eos_id()) ends.push_back(*eos);
    for (const std::int64_t id : model_.eos_token_ids) {
      const auto end = static_cast<std::uint32_t>(id);
      if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
    }
    if (ends.empty()) ends.push_back(bos ? *bos : stand_in_end());
    add_id("bos", bos);
    constexpr const char* kEnds[] = {"eos", "eot", "eom"};  // of a text, a turn, a message
    for (std::size_t i = 0; i < std::min<std::size_t>(ends.size(), 3); ++i) add_id(kEnds[i], ends[i]);
    add_id("unknown", named("unk_token"));
    add_id("padding", named("pad_token"));
    write_surroundings(bos, ends);
  }

  // Of a model that names no end: llama.cpp would take a word of the vocabulary for it.
  std::uint32_t stand_in_end() const {
    for (const std::int32_t type : {GgufTokenType::control, GgufTokenType::unused}) {
      const auto found = std::find(types_.begin(), types_.end(), type);
      if (found != types_.end()) return static_cast<std::uint32_t>(found - types_.begin());
    }
    fail(ErrorCode::not_supported, where_,
         ": neither config.json nor the tokenizer names a token that ends a text, which llama.cpp wants, "
         "expected eos_token_id");
  }

  static std::optional<std::uint32_t> as_id(const std::optional<std::int64_t>& id) {
    return id ? std::optional(static_cast<std::uint32_t>(*id)) : std::nullopt;
  }

  // What the post-processor puts around a text: BOS, EOS, both or nothing.
  void write_surroundings(std::optional<std::uint32_t> bos, const std::vector<std::uint32_t>& ends) {
    std::vector<std::uint32_t> around = tokenizer_.encode("", true);
    const bool adds_bos = bos && !around.empty() && around.front() == *bos;
    if (adds_bos) around.erase(around.begin());
    const bool adds_eos = !ends.empty() && !around.empty() && around.back() == ends[0];
    if (adds_eos) around.pop_back();
    if (!around.empty()) unsupported("post-processor", member(json_, "post_processor"));
    out_.add("tokenizer.ggml.add_bos_token", adds_bos);
    out_.add("tokenizer.ggml.add_eos_token", adds_eos);
  }

  void write_templates() {
    const json& found = member(config_, "chat_template");
    const std::string key = "tokenizer.chat_template";
    if (found.is_string()) out_.add(key, found.get<std::string>());
    if (!found.is_array()) return;
    std::vector<std::string> names;
    for (const json& entry : found) {
      const std::string name = member(entry, "name").get<std::string>();
      const std::string text = member(entry, "template").get<std::string>();
      if (name != "default") names.push_back(name);
      out_.add(name == "default" ? key : key + "." + name, text);
    }
    if (!names.empty()) out_.add("tokenizer.chat_templates", gguf_array(names));
  }

  const json& json_;
  const json& config_;
  const ModelConfig& model_;
  const std::string& where_;
  GgufMetadata& out_;
  Tokenizer tokenizer_;
  std::vector<std::string> texts_;
  std::vector<std::int32_t> types_;
  std::set<std::uint32_t> added_;
  bool adds_space_ = false;
};

}  // namespace

void add_gguf_tokenizer(const json& tokenizer, const json& tokenizer_config, const ModelConfig& model,
                        const std::string& where, GgufMetadata& metadata) {
  try {
    TokenizerWriter(tokenizer, tokenizer_config, model, where, metadata).write();
  } catch (const json::exception& error) {
    fail(ErrorCode::format, where, ": tokenizer.json: ", json_fault(error));
  }
}

}  // namespace mixtape
