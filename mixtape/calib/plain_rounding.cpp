#include "mixtape/calib/plain_rounding.h"

namespace mixtape {

Method plain_rounding(const PlainRoundingOptions& options) {
  return {.name = "plain rounding", .fit = round_to_nearest(options.rounding)};
}

}  // namespace mixtape
