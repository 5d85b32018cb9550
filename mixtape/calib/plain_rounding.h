// Round to nearest: every matrix by itself, without data.
#pragma once

#include "mixtape/calib/method.h"

namespace mixtape {

struct PlainRoundingOptions {
  Rounding rounding = Rounding::gpu;
};

Method plain_rounding(const PlainRoundingOptions& options = {});

}  // namespace mixtape
