#include "mixtape/io/chat_template_letters.h"

#include <utf8proc.h>

#include "mixtape/io/text_utf8.h"

namespace mixtape::chat {
namespace {

enum class Case { none, lower, upper, title };

Case case_of(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LL:
      return Case::lower;
    case UTF8PROC_CATEGORY_LU:
      return Case::upper;
    case UTF8PROC_CATEGORY_LT:
      return Case::title;
    default:
      return Case::none;
  }
}

bool has_case(char32_t c) { return case_of(c) != Case::none; }

bool is_sigma(std::string_view letter) { return letter == "\u03A3"; }

// Letters with a case, and those that it passes over, such as marks and apostrophes.
bool is_passed_over(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(U"'.:\u00B7\u2018\u2019\u2024\u2027").find(c) != std::u32string_view::npos;
  }
}

// A capital sigma at the end of a word has a small letter of its own.
bool ends_word(std::string_view before, std::string_view behind) {
  while (!before.empty() && is_passed_over(last_code_point(before).value))
    before.remove_suffix(last_code_point(before).size);
  while (!behind.empty() && is_passed_over(first_code_point(behind).value))
    behind.remove_prefix(first_code_point(behind).size);
  return !before.empty() && has_case(last_code_point(before).value) &&
         (behind.empty() || !has_case(first_code_point(behind).value));
}

std::string lower_in_context(std::string_view text) {
  if (text.find("\u03A3") == text.npos) return to_lower(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view letter = text.substr(at, first_code_point(text.substr(at)).size);
    const bool final = is_sigma(letter) && ends_word(text.substr(0, at), text.substr(at + letter.size()));
    out += final ? "\u03C2" : to_lower(letter);
    at += letter.size();
  }
  return out;
}

}  // namespace

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
// The superscripts and circled digits that are digits to Python.
bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}
bool is_alphanumeric(char32_t c) { return is_letter(c) || is_number(c); }
bool is_ascii(char32_t c) { return c < 0x80; }

bool is_lower(std::string_view text) {
  bool any = false;
  for (; !text.empty(); text.remove_prefix(first_code_point(text).size)) {
    const Case c = case_of(first_code_point(text).value);
    if (c == Case::upper || c == Case::title) return false;
    any = any || c == Case::lower;
  }
  return any;
}

bool is_upper(std::string_view text) {
  bool any = false;
  for (; !text.empty(); text.remove_prefix(first_code_point(text).size)) {
    const Case c = case_of(first_code_point(text).value);
    if (c == Case::lower || c == Case::title) return false;
    any = any || c == Case::upper;
  }
  return any;
}

// The first letter of every run of letters with a case is raised, the others are lowered.
Value title(const std::string& text, const Arguments&) {
  std::string out;
  bool inside = false;
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    const std::string_view letter = rest.substr(0, c.size);
    out += inside ? to_lower(letter) : to_title(letter);
    inside = case_of(c.value) != Case::none;
    rest.remove_prefix(c.size);
  }
  return out;
}

Value title_words(const std::string& text, const Arguments&) {
  std::string out;
  bool inside = false;
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    const std::string_view letter = rest.substr(0, c.size);
    out += inside ? to_lower(letter) : to_upper(letter);
    inside = !is_white_space(c.value) && std::string_view("-({[<").find(letter) == std::string_view::npos;
    rest.remove_prefix(c.size);
  }
  return out;
}

Value capitalize(const std::string& text, const Arguments&) {
  if (text.empty()) return text;
  const std::size_t size = first_code_point(text).size;
  return to_title(text.substr(0, size)) +
         lower_in_context(text).substr(to_lower(text.substr(0, size)).size());
}

Value lower(const std::string& text, const Arguments&) { return lower_in_context(text); }
Value upper(const std::string& text, const Arguments&) { return to_upper(text); }

Value fold(const std::string& text, const Arguments&) { return to_lower(to_upper(text)); }

Value is_title(const std::string& text, const Arguments&) {
  bool any = false, inside = false;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(first_code_point(rest).size)) {
    const Case c = case_of(first_code_point(rest).value);
    if (c != Case::none && inside != (c == Case::lower)) return false;
    inside = c != Case::none;
    any = any || inside;
  }
  return any;
}

Value swap_case(const std::string& text, const Arguments&) {
  std::string out;
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(first_code_point(rest).size)) {
    const std::string_view letter = rest.substr(0, first_code_point(rest).size);
    out += case_of(first_code_point(rest).value) == Case::upper ? to_lower(letter) : to_upper(letter);
  }
  return out;
}

}  // namespace mixtape::chat
