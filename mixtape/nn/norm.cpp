#include "mixtape/nn/norm.h"

#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/rms_norm/rms_norm.h"

namespace mixtape {

// 1 + w has fewer bits of w than w itself: the sum is f32.
Var Norm::operator()(const Var& x) const {
  if (!weight_.value()) return x;
  const Var weight = settings_.offset == 0.0 ? weight_ : cast(weight_, DType::f32) + settings_.offset;
  return rms_norm(x, weight, settings_.eps);
}

}  // namespace mixtape
