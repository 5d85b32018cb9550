// The known word that a mistyped one was probably meant to be.
#pragma once

#include <string>
#include <vector>

namespace mixtape::cli {

// The known word that `word` begins, or else the one with the fewest letters to change; empty where none is
// near.
std::string nearest(const std::string& word, const std::vector<std::string>& known);

// "unknown command 'quantise', did you mean quantize?", or where none is near "unknown command 'x', `mixtape
// help` lists them": `kind` is "command", `lister` "mixtape help".
std::string unknown_word(const std::string& kind, const std::string& word,
                         const std::vector<std::string>& known, const std::string& lister);

}  // namespace mixtape::cli
