// How much memory a calibration will take, before it starts.
#pragma once

#include "mixtape/nn/causal_lm.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// Bytes of teacher, student, optimizer state, the activations kept for the backward pass of `tokens` tokens,
// and the largest scratch tensors. An estimate: within about a fifth of what a run then takes.
double predicted_peak_bytes(const ModelConfig& config, const QuantizationPlan& plan, DType compute,
                            std::int64_t tokens, bool checkpoint_blocks, const Device& device);

}  // namespace mixtape
