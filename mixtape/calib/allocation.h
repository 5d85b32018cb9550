// One choice for each of several modules, so that the sum of their losses is least within a number of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mixtape {

struct Choice {
  std::int64_t bytes = 0;  // 0 or more
  double loss = 0.0;
};

struct SizeRange {
  std::int64_t least = 0, most = 0;
};

// From the smallest choice of every module to the largest.
SizeRange possible_sizes(const std::vector<std::vector<Choice>>& modules);

// The number of each module's choice; their bytes add up to `budget` at most. The sum of losses is the least there is
// if sizes have a common divisor of which the range of possible sizes holds 65536 or less, as modules of ordinary
// models have. Else sizes are counted in units of 1/65536 of that range, rounded up, and what this leaves of the budget
// goes to the steps that gain most. Of equal losses the smaller size is taken. Throws invalid_argument for a module
// without choices, negative bytes, a loss that is not finite, or a budget below the least possible size.
std::vector<std::size_t> allocate(const std::vector<std::vector<Choice>>& modules, std::int64_t budget);

}  // namespace mixtape
