// Sums over the members of all processes of a run, through the memory of rank 0: added in the order of the members'
// numbers, the same bits as of as many members of one process.
#pragma once

#include <vector>

#include "mixtape/runtime/processes.h"

namespace mixtape {

// `own` holds what each member of this process gives; all give as many. Throw invalid_argument where some don't.
std::vector<double> sum_over(Processes& processes, const std::vector<std::vector<double>>& own);
std::vector<float> sum_over(Processes& processes, const std::vector<std::vector<float>>& own);

}  // namespace mixtape
