#include <charconv>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_parts.h"
#include "mixtape/io/tokenizer_regex.h"

namespace mixtape {
namespace {

using nlohmann::json;
using Tokens = std::vector<std::string>;

// Runs `change(token, index)` over all tokens.
template <class Change>
Decoder each_token(Change change) {
  return [change](Tokens tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = change(tokens[i], i);
    return tokens;
  };
}

Decoder sequence_decoder(const json& spec) {
  std::vector<Decoder> steps;
  for (const json& step : part::member(spec, "decoders")) steps.push_back(make_decoder(step));
  return [steps](Tokens tokens) {
    for (const Decoder& step : steps) tokens = step(std::move(tokens));
    return tokens;
  };
}

// A token with a code point outside the byte alphabet stands for itself.
std::string symbols_to_bytes(const std::string& token) {
  std::string bytes;
  for (std::string_view rest = token; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    const int byte = symbol_byte(c.value);
    if (byte < 0) return token;
    bytes += static_cast<char>(byte);
    rest.remove_prefix(c.size);
  }
  return bytes;
}

Tokens decode_byte_level(const Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += symbols_to_bytes(token);
  return {utf8_lossy(bytes)};
}

// The value of "<0xAB>", or -1.
int fallback_byte(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  int value = 0;
  const char* end = token.data() + 5;
  const auto parsed = std::from_chars(token.data() + 3, end, value, 16);
  return parsed.ec == std::errc() && parsed.ptr == end ? value : -1;
}

// Bytes that don't form valid UTF-8 together become one U+FFFD each.
void flush_bytes(std::string& bytes, Tokens& out) {
  if (!find_invalid_utf8(bytes)) {
    if (!bytes.empty()) out.push_back(bytes);
  } else {
    out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
  }
  bytes.clear();
}

Tokens decode_byte_fallback(const Tokens& tokens) {
  Tokens out;
  std::string bytes;
  for (const std::string& token : tokens) {
    const int byte = fallback_byte(token);
    if (byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    flush_bytes(bytes, out);
    out.push_back(token);
  }
  flush_bytes(bytes, out);
  return out;
}

Tokens fuse(const Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  return {all};
}

Decoder replace_decoder(const json& spec) {
  return each_token(
      [pattern = make_pattern(part::member(spec, "pattern")), content = part::text(spec, "content")](
          const std::string& token, std::size_t) { return replace_all(pattern, token, content); });
}

// Takes at most `start` copies of `content` from the left and `stop` from the right.
std::string strip_token(std::string_view token, std::string_view content, std::size_t start,
                        std::size_t stop) {
  for (; start > 0 && token.starts_with(content); --start) token.remove_prefix(content.size());
  for (; stop > 0 && token.ends_with(content); --stop) token.remove_suffix(content.size());
  return std::string(token);
}

Decoder strip_decoder(const json& spec) {
  return each_token([content = part::text(spec, "content"), start = part::count(spec, "start"),
                     stop = part::count(spec, "stop")](const std::string& token, std::size_t) {
    return strip_token(token, content, start, stop);
  });
}

Decoder metaspace_decoder(const json& spec) {
  const std::string mark = part::text(spec, "replacement");
  const bool prefixed = spec.contains("prepend_scheme") ? part::text(spec, "prepend_scheme") != "never"
                                                        : part::flag(spec, "add_prefix_space", true);
  return each_token([pattern = Regex::literal(mark), prefixed](const std::string& token, std::size_t index) {
    return replace_all(pattern, token, index == 0 && prefixed ? "" : " ");
  });
}

}  // namespace

Decoder make_decoder(const json& spec) {
  if (spec.is_null()) {
    return each_token([](const std::string& token, std::size_t i) { return i == 0 ? token : " " + token; });
  }
  const std::string type = part::type(spec, "decoder");
  if (type == "Sequence") return sequence_decoder(spec);
  if (type == "ByteLevel") return decode_byte_level;
  if (type == "ByteFallback") return decode_byte_fallback;
  if (type == "Fuse") return fuse;
  if (type == "Replace") return replace_decoder(spec);
  if (type == "Strip") return strip_decoder(spec);
  if (type == "Metaspace") return metaspace_decoder(spec);
  part::unknown(type, "decoder");
}

}  // namespace mixtape
