// Python's two ways to put values into a text.
#pragma once

#include <string>

#include "mixtape/io/chat_template_value.h"

namespace mixtape::chat {

// pattern % values: a tuple's values one after another, a dict's by name, anything else as the only one. Throws
// invalid_argument for a conversion that isn't known, and for values too few, too many or of the wrong kind.
std::string format_percent(const std::string& pattern, const Value& values);

// pattern.format(arguments), with !r, !s and format specs of strings and numbers. Throws as above.
std::string format_braces(const std::string& pattern, const Arguments& arguments);

}  // namespace mixtape::chat
