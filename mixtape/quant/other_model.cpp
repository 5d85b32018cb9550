#include "mixtape/quant/other_model.h"

#include <algorithm>

#include "mixtape/core/error.h"

namespace mixtape {

void refuse_other_model(const std::string& where, const std::string& what,
                        const std::vector<std::string>& differences) {
  constexpr std::size_t kNamed = 3;
  if (differences.empty()) return;
  std::string text;
  for (std::size_t i = 0; i < std::min(differences.size(), kNamed); ++i)
    text += (i > 0 ? "; " : "") + differences[i];
  if (differences.size() > kNamed) text += str("; and ", differences.size() - kNamed, " more");
  fail(ErrorCode::format, where, ": is ", what, " of another model: ", text);
}

}  // namespace mixtape
