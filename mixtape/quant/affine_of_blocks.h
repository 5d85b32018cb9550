// GGUF's blocks as an MLX directory holds them without loss: affine codes in groups of 32, with a scale and a bias each.
//   Q4_0 Q4_1 Q5_0 Q5_1 Q8_0   scales and biases are f16 numbers (a bias of -8, -16, -128 scales is one too)
//   Q4_K Q5_K                  they are f16 numbers times 6 bits, which f32 holds
//   Q2_K Q3_K Q6_K             groups of 16: not held
#pragma once

#include <string>

#include "mixtape/quant/quantization_plan.h"

namespace mixtape {

// Why a directory whose scales are `value` can't hold weights of this format exactly; empty where it can.
std::string affine_obstacle(const WeightFormat& format, DType value);

// The value dtype that holds every scale and bias of `plan`'s blocks and every value that is not quantized: the model's
// own of bf16 and f16, else the other, else f32. For a plan of plan_of_stored.
DType exact_dtype(const ModelSource& source, const QuantizationPlan& plan);

// The plan with affine codes for blocks, whose tensors stored_tensors gives. Throws not_supported, naming module and obstacle, for what can't be held.
QuantizationPlan affine_plan(QuantizationPlan plan, DType value);

}  // namespace mixtape
