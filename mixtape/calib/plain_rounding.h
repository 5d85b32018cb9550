// Plain rounding (RTN): every matrix by itself, without data; scale and bias from the extremes of each group
// (ops/quantize/affine.h).
#pragma once

#include "mixtape/calib/method.h"

namespace mixtape {

struct PlainRoundingOptions {
  Rounding rounding = Rounding::gpu;
};

Method plain_rounding(const PlainRoundingOptions& options = {});

}  // namespace mixtape
