// The report's rows by source: a line for each, and the same as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "mixtape/calib/data.h"
#include "mixtape/calib/evaluation.h"

namespace mixtape::cli {

// Of the student before and after; `after` may be null. Prints nothing for fewer than two groups.
void print_groups(const std::vector<RowGroup>& groups, const Evaluation& before, const Evaluation* after);

// A model's perplexity on each group; nothing for fewer than two.
void print_group_perplexities(const std::vector<RowGroup>& groups, const Evaluation& e);

// [{"name", "rows", "initial", "result", "kl_cut"}], the last two where there is an after.
nlohmann::json group_figures(const std::vector<RowGroup>& groups, const Evaluation& before,
                             const Evaluation* after);

}  // namespace mixtape::cli
