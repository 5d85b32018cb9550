// UTF-8 and the few Unicode properties that tokenizers need.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace mixtape {

struct CodePoint {
  char32_t value;
  std::size_t size;  // bytes
  bool valid;        // if not, `size` is the longest prefix of a well-formed sequence, at least 1
};

// The code point that `text` begins with; `text` is not empty.
CodePoint first_code_point(std::string_view text);

// Same at the end; `text` is valid UTF-8 and not empty.
CodePoint last_code_point(std::string_view text);

// Byte offset of the first ill-formed sequence.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// Throws format, naming `where` and the byte offset, unless `text` is valid.
void require_utf8(std::string_view text, const std::string& where);

std::size_t count_code_points(std::string_view text);
std::string to_utf8(char32_t value);

// Each ill-formed sequence becomes U+FFFD.
std::string utf8_lossy(std::string_view bytes);

bool is_white_space(char32_t value);  // the Unicode property White_Space
bool is_word(
    char32_t value);  // a letter, mark, digit, connector or joiner: \w of Unicode regular expressions
bool is_number(char32_t value);  // categories Nd, Nl and No

// Removes white space on the chosen sides.
std::string_view strip_white_space(std::string_view text, bool left, bool right);

// One letter at a time, without context; some become several.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
std::string to_title(std::string_view text);  // as the first letter of a word

}  // namespace mixtape
