// Python's string methods, as chat templates call them.
#pragma once

#include <cstdint>
#include <string>

#include "mixtape/io/chat_template_value.h"

namespace mixtape::chat {

Value strip(const std::string& text, const Arguments& arguments);
Value replace(const std::string& text, const Arguments& arguments);
Value indent(const std::string& text, const Arguments& arguments);

Value center(const std::string& text, const Arguments& arguments);

// int() of a number. Throws invalid_argument for what 64 bits can't hold.
std::int64_t truncate(const Value& number);

// int() and float() of a string, else `otherwise`.
Value parse_integer(const std::string& text, const Value& otherwise, int base = 10);
Value parse_float(const std::string& text, const Value& otherwise);

// The method `name` of `text`, a string; Undefined if there is none. Of a markup it escapes its arguments and
// gives markups.
Value string_method(const Value& text, const std::string& name);

}  // namespace mixtape::chat
