// Learning rate over the steps of a run.
#pragma once

#include <cstdint>

namespace mixtape {

// Rises linearly over the first `warmup` steps, then falls along half a cosine to final_share * peak at the
// last step:
//   peak * step / warmup                                                        step <= warmup
//   peak * (f + (1-f) * (1 + cos(pi * (step-warmup) / (steps-warmup))) / 2)     else, f = final_share
// Steps count from 1 to `steps`; beyond, the last value. Throws invalid_argument for a step below 1, warmup
// outside 0..steps, or a share outside 0..1.
double warmup_cosine(double peak, std::int64_t step, std::int64_t warmup, std::int64_t steps,
                     double final_share = 0.0);

}  // namespace mixtape
