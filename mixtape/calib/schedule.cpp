#include "mixtape/calib/schedule.h"

#include <cmath>

#include "mixtape/core/error.h"

namespace mixtape {

double warmup_cosine(double peak, std::int64_t step, std::int64_t warmup, std::int64_t steps,
                     double final_share) {
  require(step >= 1, "schedule: step is ", step, ", expected 1 or more");
  require(warmup >= 0 && warmup <= steps, "schedule: warm-up is ", warmup, " steps, expected 0 to ", steps);
  require(final_share >= 0.0 && final_share <= 1.0, "schedule: final share is ", final_share,
          ", expected 0 to 1");
  if (step <= warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (step >= steps) return peak * (warmup == steps ? 1.0 : final_share);
  const double progress = static_cast<double>(step - warmup) / static_cast<double>(steps - warmup);
  return peak * (final_share + (1.0 - final_share) * 0.5 * (1.0 + std::cos(3.141592653589793 * progress)));
}

}  // namespace mixtape
