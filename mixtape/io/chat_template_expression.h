#pragma once

#include "mixtape/io/chat_template_cursor.h"
#include "mixtape/io/chat_template_syntax.h"

namespace mixtape::chat {

// Reads one expression. Throws format, naming the line.
ExpressionPtr parse_expression(Cursor& in);

// The filters that follow, applied to the name "".
ExpressionPtr parse_filters(Cursor& in);

// One or more expressions; more than one, or a comma at the end, make a tuple. Without conditions `x if y`
// ends after x, as in the head of a loop.
ExpressionPtr parse_tuple(Cursor& in, bool with_conditions = true);

}  // namespace mixtape::chat
