// Modules of a plan as rows of a table.
#pragma once

#include <string>
#include <vector>

#include "mixtape/quant/quantization_plan.h"

namespace mixtape::cli {

struct PlanRow {
  std::string path;  // "model.layers.0-3,7.self_attn.q_proj"
  std::vector<const PlannedModule*> modules;
};

// In the order of their first modules: what differs in nothing but its layer shares a row. Of `modules` that outlive the
// rows.
std::vector<PlanRow> plan_rows(const std::vector<const PlannedModule*>& modules);

}  // namespace mixtape::cli
