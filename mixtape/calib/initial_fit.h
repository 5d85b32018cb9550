// How a matrix first becomes codes, scales and biases; what a method then improves.
#pragma once

#include <functional>

#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// From the module's weight w f32 [..., N, K], in the format that the plan says; scales and biases come in
// f32. `importance` f32 [K] weighs the errors of the input channels; null: all count alike. Throws, naming
// the module's tensor, row and column, for a weight that is not finite.
using InitialFit =
    std::function<QuantizedWeight(const PlannedModule& module, const Buffer& w, const Buffer& importance)>;

// Plain rounding (RTN): scale and bias from the extremes of each group (ops/quantize/affine.h). Takes no
// notice of importance.
InitialFit round_to_nearest(Rounding rounding = Rounding::gpu);

}  // namespace mixtape
