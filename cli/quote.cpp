#include "cli/quote.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace mixtape::cli {
namespace {

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::string escaped(char c) {
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  return fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
}

// Bytes past ASCII are letters of names, whatever the encoding.
bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0 ||
         std::string_view("_@%+=:,./-").find(c) != std::string::npos;
}

// Without the controls that are not in `kept`.
std::string without_controls(const std::string& text, std::string_view kept) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    // U+0080 to U+009F are controls, too.
    const bool is_wide = text[i] == '\xc2' && i + 1 < text.size() &&
                         static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                         static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_wide) shown += escaped(text[i++]);
    if (is_wide || (is_control(text[i]) && kept.find(text[i]) == kept.npos)) {
      shown += escaped(text[i]);
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace

std::string printable(const std::string& text) { return without_controls(text, ""); }
std::string printable_lines(const std::string& text) { return without_controls(text, "\n\t"); }

std::string shell_word(const std::string& name) {
  const std::string word = (name.starts_with('-') ? "./" : "") + name;  // no option
  if (std::all_of(word.begin(), word.end(), is_plain)) return word;
  if (word.find('\'') == word.npos && printable(word) == word) return "'" + word + "'";
  std::string quoted;
  for (const char c : word) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return "$'" + printable(quoted) + "'";
}

}  // namespace mixtape::cli
