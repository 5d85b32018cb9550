#pragma once

#include <string>

#include "mixtape/io/chat_template_syntax.h"

namespace mixtape::chat {

// The text of a template with the given names defined. Throws with the line in front of the message:
// invalid_argument for what the template itself refuses or a value of the wrong kind, not_supported for what
// isn't known.
std::string evaluate(const Block& block, const Entries& names);

}  // namespace mixtape::chat
