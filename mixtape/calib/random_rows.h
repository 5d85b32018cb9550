// Rows of random tokens, for tests and benches.
#pragma once

#include "mixtape/calib/data.h"
#include "mixtape/core/random.h"

namespace mixtape {

// `count` rows of `length` tokens below `vocab_size`.
inline std::vector<TokenRow> random_rows(std::size_t count, std::size_t length, std::int64_t vocab_size,
                                         std::uint64_t seed) {
  std::vector<TokenRow> rows(count);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::size_t i = 0; i < length; ++i) {
      rows[r].push_back(
          static_cast<std::uint32_t>(uniform_index(seed + r, i, static_cast<std::uint64_t>(vocab_size))));
    }
  }
  return rows;
}

}  // namespace mixtape
