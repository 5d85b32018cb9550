#include "mixtape/io/text_utf8.h"

#include <utf8proc.h>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

struct Lead {
  std::size_t size;  // of the whole sequence; 0 for a byte that starts none
  unsigned char second_low = 0x80, second_high = 0xBF;
};

// Well-formed sequences: no overlong forms, no surrogates, nothing above U+10FFFF.
Lead lead(unsigned char byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xC2 || byte > 0xF4) return {0};
  if (byte < 0xE0) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {4};
}

utf8proc_category_t category(char32_t value) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(value));
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const Lead first = lead(byte(0));
  if (first.size == 1) return {byte(0), 1, true};
  if (first.size == 0) return {0xFFFD, 1, false};
  char32_t value = byte(0) & (0x7Fu >> first.size);
  for (std::size_t i = 1; i < first.size; ++i) {
    const unsigned char low = i == 1 ? first.second_low : 0x80;
    const unsigned char high = i == 1 ? first.second_high : 0xBF;
    if (i >= text.size() || byte(i) < low || byte(i) > high) return {0xFFFD, i, false};
    value = value << 6 | (byte(i) & 0x3Fu);
  }
  return {value, first.size, true};
}

CodePoint last_code_point(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return first_code_point(text.substr(begin));
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    if (!c.valid) return at;
    at += c.size;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, const std::string& where) {
  if (const auto at = find_invalid_utf8(text)) {
    fail(ErrorCode::format, where, ": byte ", *at, " begins no valid UTF-8 sequence");
  }
}

std::size_t count_code_points(std::string_view text) {
  std::size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

std::string to_utf8(char32_t value) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes);
  return std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const CodePoint c = first_code_point(bytes);
    out += c.valid ? bytes.substr(0, c.size) : std::string_view("\xEF\xBF\xBD");
    bytes.remove_prefix(c.size);
  }
  return out;
}

bool is_white_space(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= 0x09 && value <= 0x0D);
  const auto c = category(value);
  return value == 0x85 || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL || c == UTF8PROC_CATEGORY_ZP;
}

bool is_number(char32_t value) {
  if (value < 0x80) return value >= '0' && value <= '9';
  const auto c = category(value);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_word(char32_t value) {
  switch (category(value)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  const bool circled_letter =
      (value >= 0x24B6 && value <= 0x24E9) || (value >= 0x1F130 && value <= 0x1F149) ||
      (value >= 0x1F150 && value <= 0x1F169) || (value >= 0x1F170 && value <= 0x1F189);
  return circled_letter || value == 0x200C || value == 0x200D;
}

std::string_view strip_white_space(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const CodePoint c = first_code_point(text);
    if (!is_white_space(c.value)) break;
    text.remove_prefix(c.size);
  }
  while (right && !text.empty()) {
    const CodePoint c = last_code_point(text);
    if (!is_white_space(c.value)) break;
    text.remove_suffix(c.size);
  }
  return text;
}

}  // namespace mixtape
