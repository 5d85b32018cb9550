// Counts as they are read.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace mixtape {

// "1 row", "3 rows". `plural` where it is no "s" that is added.
std::string counted(std::integral auto count, std::string_view noun, std::string_view plural = "") {
  std::string text = std::to_string(count) + " ";
  if (count == 1 || plural.empty()) return text.append(noun) + (count == 1 ? "" : "s");
  return text.append(plural);
}

}  // namespace mixtape
