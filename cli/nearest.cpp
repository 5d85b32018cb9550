#include "cli/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace mixtape::cli {
namespace {

// Letters to insert, remove or exchange (Levenshtein).
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);  // of the first i letters of a to the first j of b
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t exchanged = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({exchanged, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const bool begins = word.size() >= 3 && candidate.starts_with(word);
    const std::size_t changes = begins ? 0 : distance(word, candidate);
    if (changes >= least || changes >= word.size()) continue;
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
