#include "cli/nearest.h"

#include <algorithm>
#include <cctype>

#include "mixtape/core/glob.h"

namespace mixtape::cli {

static std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const bool begins = word.size() >= 3 && candidate.starts_with(word);
    const std::size_t changes = begins ? 0 : glob_distance(lower_case(word), lower_case(candidate));
    // Of two letters one says nothing.
    if (changes >= least || changes >= word.size() || (word.size() < 3 && changes > 0)) continue;
    least = changes;
    best = candidate;
  }
  return best;
}

std::string unknown_word(const std::string& kind, const std::string& word,
                         const std::vector<std::string>& known, const std::string& lister) {
  const std::string guess = nearest(word, known);
  const std::string text = "unknown " + kind + " '" + word + "', ";
  return text + (guess.empty() ? "`" + lister + "` lists them" : "did you mean " + guess + "?");
}

}  // namespace mixtape::cli
