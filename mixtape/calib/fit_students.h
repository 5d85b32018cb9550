// Students whose matrices were fitted one by one, with what is known of their inputs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/method.h"

namespace mixtape {

struct FittedStudent {
  Student student;
  double seconds = 0.0;  // of the fits alone
  std::vector<std::string> notes;
};

// One student for each of `methods`, all of which fit; a method takes up what the one before it made. Every module
// that the plan quantizes is fitted to the source's own values in f32. Where a method makes use of them, statistics
// are gathered from `rows`, in one walk through the teacher, and `on_statistics` hears those of each layer; without rows
// there are none. Errors are those of the fits; interrupted between modules and batches. Fitted modules are kept as
// "fits" (kept_states.h); a run that finds all of them gathers no statistics.
std::vector<FittedStudent> fit_students(
    const Teacher& teacher, const QuantizationPlan& plan, std::span<const Method> methods,
    std::span<const TokenRow> rows, std::int64_t batch_size, const RunHooks& hooks = {},
    const std::function<void(const LayerStatistics&)>& on_statistics = {});

// By one method, without data.
Student fit_student(const Teacher& teacher, const QuantizationPlan& plan, const Method& method,
                    const RunHooks& hooks = {});

}  // namespace mixtape
