// Letters with a case, as Python's string methods see them.
#pragma once

#include <string>
#include <string_view>

#include "mixtape/io/chat_template_value.h"

namespace mixtape::chat {

bool is_letter(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);  // also superscripts and circled digits
bool is_alphanumeric(char32_t c);
bool is_ascii(char32_t c);

bool is_lower(std::string_view text);  // islower()
bool is_upper(std::string_view text);

Value lower(const std::string& text, const Arguments& arguments);
Value upper(const std::string& text, const Arguments& arguments);
Value fold(const std::string& text, const Arguments& arguments);  // casefold()
Value swap_case(const std::string& text, const Arguments& arguments);
Value is_title(const std::string& text, const Arguments& arguments);
Value title(const std::string& text, const Arguments& arguments);
Value title_words(const std::string& text,
                  const Arguments& arguments);  // Jinja's filter, not Python's method
Value capitalize(const std::string& text, const Arguments& arguments);

}  // namespace mixtape::chat
