// Patterns of names: '*' stands for any characters, none too, '?' for one.
#pragma once

#include <cstddef>
#include <string_view>

namespace mixtape {

// How many characters of `text` to insert, remove or exchange until `pattern` matches it; 0 where it does.
// Without '*' and '?' that is the Levenshtein distance.
std::size_t glob_distance(std::string_view pattern, std::string_view text);

inline bool glob_matches(std::string_view pattern, std::string_view text) {
  return glob_distance(pattern, text) == 0;
}

}  // namespace mixtape
