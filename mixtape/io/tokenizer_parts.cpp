#include "mixtape/io/tokenizer_parts.h"

#include <array>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_regex.h"

namespace mixtape {

using nlohmann::json;

namespace part {
namespace {

std::string describe(const json& spec) {
  const auto found = spec.find("type");
  return found != spec.end() && found->is_string() ? found->get<std::string>() : "object";
}

[[noreturn]] void wrong(const json& spec, const char* key, const char* wanted) {
  fail(ErrorCode::format, "tokenizer ", describe(spec), ": \"", key, "\" must be ", wanted);
}

}  // namespace

std::string type(const json& spec, const char* kind) {
  if (!spec.is_object() || !spec.contains("type") || !spec["type"].is_string()) {
    fail(ErrorCode::format, "tokenizer ", kind, ": expected an object with a \"type\"");
  }
  return spec["type"].get<std::string>();
}

const json& member(const json& spec, const char* key) {
  const auto found = spec.find(key);
  if (found == spec.end()) wrong(spec, key, "present");
  return *found;
}

std::string text(const json& spec, const char* key) {
  const json& value = member(spec, key);
  if (!value.is_string()) wrong(spec, key, "a string");
  return value.get<std::string>();
}

bool flag(const json& spec, const char* key, bool otherwise) {
  const auto found = spec.find(key);
  if (found == spec.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) wrong(spec, key, "true or false");
  return found->get<bool>();
}

std::size_t count(const json& spec, const char* key) {
  const json& value = member(spec, key);
  if (!is_id(value)) wrong(spec, key, "a count");
  return value.get<std::size_t>();
}

bool is_id(const json& value) {
  if (!value.is_number_integer()) return false;
  return value >= 0 && value <= kMaxId;
}

void unknown(const std::string& type, const char* kind) {
  fail(ErrorCode::not_supported, "tokenizer ", kind, " of type \"", type, "\" is not supported");
}

}  // namespace part

Regex make_pattern(const json& spec) {
  if (spec.is_object() && spec.contains("String")) return Regex::literal(part::text(spec, "String"));
  if (spec.is_object() && spec.contains("Regex")) return Regex(part::text(spec, "Regex"));
  fail(ErrorCode::format, "tokenizer pattern: expected {\"String\": ...} or {\"Regex\": ...}, found ",
       spec.dump());
}

namespace {

constexpr char32_t kFirstStandIn = 256;  // code points given in order to the bytes that aren't printable
constexpr std::size_t kStandIns = 68;

bool is_printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct ByteAlphabet {
  std::array<std::string, 256> symbols;
  std::array<int, kStandIns> stand_ins{};

  ByteAlphabet() {
    std::size_t used = 0;
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (is_printable(byte)) {
        symbols[byte] = to_utf8(byte);
      } else {
        stand_ins[used] = static_cast<int>(byte);
        symbols[byte] = to_utf8(kFirstStandIn + static_cast<char32_t>(used++));
      }
    }
  }
};

const ByteAlphabet& alphabet() {
  static const ByteAlphabet table;
  return table;
}

}  // namespace

const std::string& byte_symbol(unsigned char byte) { return alphabet().symbols[byte]; }

int symbol_byte(char32_t symbol) {
  if (symbol < kFirstStandIn) return is_printable(symbol) ? static_cast<int>(symbol) : -1;
  return symbol < kFirstStandIn + kStandIns ? alphabet().stand_ins[symbol - kFirstStandIn] : -1;
}

void Pieces::add(std::string_view piece) {
  if (piece.empty()) return;
  text += piece;
  ends.push_back(text.size());
}

}  // namespace mixtape
