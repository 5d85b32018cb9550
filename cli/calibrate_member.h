// Another process than the first of a calibration that several share (shared_run.h): it takes part in the steps.
#pragma once

#include "cli/calibrate_options.h"
#include "mixtape/calib/data.h"
#include "mixtape/quant/quantization_plan.h"
#include "mixtape/runtime/launch.h"
#include "mixtape/runtime/processes.h"

namespace mixtape::cli {

// What the first process has decided and read, once the steps are next. Null: there are no others.
void send_calibration(Processes* processes, const CalibrateOptions& options, const QuantizationPlan& plan,
                      const CalibrationData& data);

// The status that the first process ends with.
int take_part_in_calibrate(const CalibrateOptions& options, const Launch& launch);

}  // namespace mixtape::cli
