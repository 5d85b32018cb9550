#include "mixtape/calib/initial_fit.h"

namespace mixtape {

InitialFit round_to_nearest(Rounding rounding) {
  return [rounding](const PlannedModule& module, const Buffer& w, const Buffer&) {
    return quantize_matrix(module.source, w, *module.stored, rounding, DType::f32);
  };
}

}  // namespace mixtape
