// What GGUF files say of tokens.
#pragma once

#include <cstdint>
#include <string_view>

#include "mixtape/io/text_utf8.h"

namespace mixtape {

// Values of "tokenizer.ggml.token_type".
struct GgufTokenType {
  enum : std::int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
};

inline constexpr const char* kSpaceMark = "\u2581";  // what SentencePiece puts for a space

// Of one character, any number of times.
inline bool is_run(std::string_view token) {
  const std::size_t size = first_code_point(token).size;
  return token.substr(size) == token.substr(0, token.size() - size);
}

}  // namespace mixtape
