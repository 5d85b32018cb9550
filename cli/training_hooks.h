// What training shows while it runs, and how Ctrl-C stops it.
#pragma once

#include "cli/progress.h"
#include "mixtape/calib/trainer.h"

namespace mixtape::cli {

// Loss and rate on the progress line, validations on lines of their own. `progress` must outlive the hooks.
TrainHooks training_hooks(Progress& progress);

}  // namespace mixtape::cli
