// Mixed plans whose choices were measured.
#pragma once

#include <vector>

#include "mixtape/calib/mixed_plan.h"

namespace mixtape {

struct CheckedPlan {
  QuantizationPlan plan;
  double kl = 0.0;        // of the whole model fitted so, on the rows that the options name
  double first_kl = 0.0;  // of the plan that estimates led to; kl where that one was kept
};

// plan_within, and then a round of swaps: the KL of each module at the format that it got, at the next larger and at
// the next smaller one is measured where it was an estimate, and the sum made least again. Of the two plans the one
// is kept of which the whole model, fitted, has the lower KL. `losses` learn what was measured. Errors are those of
// plan_within and measure_sensitivity.
CheckedPlan checked_plan_within(const Teacher& teacher, const QuantizationPlan& plan,
                                std::vector<ModuleLosses>& losses, const CalibrationData& data,
                                std::int64_t bytes, DType storage, const SensitivityOptions& options,
                                const RunHooks& hooks = {});

}  // namespace mixtape
