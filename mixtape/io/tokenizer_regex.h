// Regular expressions of tokenizer files (the Oniguruma dialect), run by PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace mixtape {

struct RegexMatch {
  std::size_t begin, end;  // bytes
};

class Regex {
 public:
  // Throws format if the pattern doesn't compile, not_supported for class intersections and nested classes.
  explicit Regex(const std::string& pattern);

  // Matches exactly `text`.
  static Regex literal(const std::string& text);

  // All matches from left to right without overlap; `text` is valid UTF-8. An empty match moves on by one
  // code point.
  std::vector<RegexMatch> find_all(std::string_view text) const;

 private:
  Regex() = default;

  std::string literal_;  // if not empty: the plain text to find
  std::shared_ptr<const void> code_;
};

// `text` with every match replaced by `content`, taken literally.
std::string replace_all(const Regex& regex, std::string_view text, std::string_view content);

}  // namespace mixtape
