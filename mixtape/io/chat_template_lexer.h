// Cuts a Jinja template into text and the tokens of its tags. White space around tags is taken away here, as
// with trim_blocks and lstrip_blocks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mixtape::chat {

enum class TokenKind {
  text,
  output_begin,
  output_end,
  block_begin,
  block_end,
  name,
  integer,
  real,
  string,
  op,
  end
};

struct Token {
  TokenKind kind;
  std::string text;  // what it says; of a string the decoded value
  int line;
};

// Ends with a token of kind `end`. Throws format, naming the line.
std::vector<Token> tokenize(const std::string& source);

}  // namespace mixtape::chat
