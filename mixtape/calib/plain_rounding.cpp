#include "mixtape/calib/plain_rounding.h"

namespace mixtape {

Method plain_rounding(const PlainRoundingOptions& options) {
  return {.name = "plain rounding", .fit = [options](const FitInput& in) {
            return quantize_matrix(in.module.source, in.w, *in.module.stored, options.rounding, DType::f32);
          }};
}

}  // namespace mixtape
