#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "mixtape/core/error.h"
#include "mixtape/io/text_utf8.h"
#include "mixtape/io/tokenizer_parts.h"
#include "mixtape/io/tokenizer_regex.h"

namespace mixtape {
namespace {

using nlohmann::json;

bool is_ascii(std::string_view text) {
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  }
  return true;
}

std::string normal_form(const std::string& text, int options) {
  if (is_ascii(text)) return text;
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(options | UTF8PROC_STABLE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, std::free);
  if (size < 0) fail(ErrorCode::format, "tokenizer normalizer: ", utf8proc_errmsg(size));
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
}

Normalizer unicode_form(int options) {
  return [options](const std::string& text) { return normal_form(text, options); };
}

Normalizer sequence_normalizer(const json& spec) {
  std::vector<Normalizer> steps;
  for (const json& step : part::member(spec, "normalizers")) steps.push_back(make_normalizer(step));
  return [steps](std::string text) {
    for (const Normalizer& step : steps) text = step(std::move(text));
    return text;
  };
}

Normalizer prepend(const json& spec) {
  return [prefix = part::text(spec, "prepend")](std::string text) {
    return text.empty() ? std::move(text) : prefix + text;
  };
}

Normalizer replace_normalizer(const json& spec) {
  return [pattern = make_pattern(part::member(spec, "pattern")), content = part::text(spec, "content")](
             const std::string& text) { return replace_all(pattern, text, content); };
}

Normalizer strip_normalizer(const json& spec) {
  return [left = part::flag(spec, "strip_left", true), right = part::flag(spec, "strip_right", true)](
             const std::string& text) { return std::string(strip_white_space(text, left, right)); };
}

}  // namespace

Normalizer make_normalizer(const json& spec) {
  if (spec.is_null()) return [](std::string text) { return text; };
  const std::string type = part::type(spec, "normalizer");
  if (type == "Sequence") return sequence_normalizer(spec);
  if (type == "NFC") return unicode_form(UTF8PROC_COMPOSE);
  if (type == "NFD") return unicode_form(UTF8PROC_DECOMPOSE);
  if (type == "NFKC") return unicode_form(UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
  if (type == "NFKD") return unicode_form(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  if (type == "Prepend") return prepend(spec);
  if (type == "Replace") return replace_normalizer(spec);
  if (type == "Lowercase") return [](const std::string& text) { return to_lower(text); };
  if (type == "Strip") return strip_normalizer(spec);
  part::unknown(type, "normalizer");
}

}  // namespace mixtape
