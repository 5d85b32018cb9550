#pragma once

#include <string>

#include "mixtape/io/chat_template_syntax.h"

namespace mixtape::chat {

// Throws format, naming the line, and not_supported for a tag that isn't known.
Block parse(const std::string& source);

}  // namespace mixtape::chat
