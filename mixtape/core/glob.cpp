#include "mixtape/core/glob.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace mixtape {

std::size_t glob_distance(std::string_view pattern, std::string_view text) {
  std::vector<std::size_t> row(text.size() + 1);  // of the pattern's beginning to the first j of text
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char p : pattern) {
    const bool is_run = p == '*';
    std::size_t diagonal = row[0];
    if (!is_run) ++row[0];
    for (std::size_t j = 1; j <= text.size(); ++j) {
      const std::size_t above = row[j];
      const std::size_t exchanged = diagonal + (p == '?' || p == text[j - 1] ? 0 : 1);
      row[j] = is_run ? std::min(above, row[j - 1]) : std::min({exchanged, row[j - 1] + 1, above + 1});
      diagonal = above;
    }
  }
  return row.back();
}

}  // namespace mixtape
