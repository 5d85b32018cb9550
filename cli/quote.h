// Names as they can be shown: of files, tensors and tokens, which may hold any byte.
#pragma once

#include <string>

namespace mixtape::cli {

// Control characters as \n, \t and \x1b: a line stays one, and a terminal does nothing but show it.
std::string printable(const std::string& text);

// The same of text that has lines: line breaks and tabs stay.
std::string printable_lines(const std::string& text);

// A file's name as a word of a POSIX shell's command line; with control characters of bash's and zsh's.
std::string shell_word(const std::string& name);

}  // namespace mixtape::cli
