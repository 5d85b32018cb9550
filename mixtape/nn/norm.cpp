#include "mixtape/nn/norm.h"

#include "mixtape/ops/elementwise/cast.h"
#include "mixtape/ops/elementwise/elementwise.h"
#include "mixtape/ops/rms_norm/rms_norm.h"

namespace mixtape {

Var Norm::operator()(const Var& x) const {
  return weight_.value() ? rms_norm(x, weight(), settings_.eps) : x;
}

Var Norm::operator()(const Var& heads, const RopeTurns& turns) const {
  if (!weight_.value()) return rope(heads, turns.positions, turns.inv_freq, turns.options);
  return norm_rope(heads, weight(), settings_.eps, turns);
}

// 1 + w has fewer bits of w than w itself: the sum is f32.
Var Norm::weight() const {
  return settings_.offset == 0.0 ? weight_ : cast(weight_, DType::f32) + settings_.offset;
}

}  // namespace mixtape
