// The parts of a tokenizer, each made from its JSON object. A type that isn't known is refused by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace mixtape {

// Sequence NFC NFD NFKC NFKD Prepend Replace Lowercase Strip; null changes nothing.
using Normalizer = std::function<std::string(std::string)>;
Normalizer make_normalizer(const nlohmann::json& spec);

// A text cut into consecutive non-empty pieces.
struct Pieces {
  std::string text;
  std::vector<std::size_t> ends;
  bool at_start = false;  // the first piece begins the whole input

  void add(std::string_view piece);

  template <class Visit>
  void for_each(Visit visit) const {
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      visit(std::string_view(text).substr(begin, end - begin));
      begin = end;
    }
  }
};

// Sequence ByteLevel Split Digits Metaspace Whitespace; null cuts nothing.
using PreTokenizer = std::function<Pieces(const Pieces&)>;
PreTokenizer make_pre_tokenizer(const nlohmann::json& spec);

// ByteLevel Sequence Replace ByteFallback Fuse Strip Metaspace; null joins the tokens with spaces.
using Decoder = std::function<std::vector<std::string>(std::vector<std::string>)>;
Decoder make_decoder(const nlohmann::json& spec);

// TemplateProcessing ByteLevel Sequence: the ids around those of the text.
struct Template {
  std::vector<std::uint32_t> before, after;
};
Template make_template(const nlohmann::json& spec);

// Byte-level alphabet: each byte is written as one printable code point.
const std::string& byte_symbol(unsigned char byte);
// The byte that `symbol` stands for, or -1.
int symbol_byte(char32_t symbol);

// Members of a part's JSON object; errors name the part and the member. Throw format.
namespace part {
std::string type(const nlohmann::json& spec, const char* kind);
const nlohmann::json& member(const nlohmann::json& spec, const char* key);
std::string text(const nlohmann::json& spec, const char* key);
bool flag(const nlohmann::json& spec, const char* key, bool otherwise);
std::size_t count(const nlohmann::json& spec, const char* key);
constexpr std::uint32_t kMaxId = (1u << 24) - 1;
bool is_id(const nlohmann::json& value);  // an integer from 0 to kMaxId
[[noreturn]] void unknown(const std::string& type, const char* kind);
}  // namespace part

class Regex;
// {"String": ...} or {"Regex": ...}.
Regex make_pattern(const nlohmann::json& spec);

}  // namespace mixtape
