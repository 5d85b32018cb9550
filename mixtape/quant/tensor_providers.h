// Where the tensors of a written model come from.
#pragma once

#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// The weight itself. Throws invalid_argument, naming the module, for another format than the plan's.
const QuantizedWeight& checked_weight(const QuantizedWeight& weight, const PlannedModule& module);

// Plain rounding of the source's matrices, when they are asked for. `source` must outlive it.
TensorProvider rounded_tensors(const ModelSource& source, Rounding rounding, DType scale_dtype,
                               const Device& device);

// How a model is stored, quantized or not, a GGUF file's blocks too: every tensor as it is. Throws format for a tensor
// that is missing or has another shape.
QuantizationPlan plan_of_stored(const ModelSource& source);
// Its quantized modules, scales and biases in f32; blocks as affine codes where the plan says so (affine_of_blocks.h).
// `source` must outlive it.
TensorProvider stored_tensors(const ModelSource& source);

// A matrix that a GGUF file holds as blocks, as affine codes with the scales and biases, f32 on the host, that these
// stand for; nothing where the source has none of it.
std::optional<QuantizedWeight> load_stored_blocks(const ModelSource& source, const ModelTensor& tensor);

// The most common format of the modules, and what deviates from it.
QuantizationConfig config_of(const std::vector<PlannedModule>& modules);

// The same model with every module in float, and its tensors, those that are quantized decoded to f32.
QuantizationPlan plan_of_decoded(const ModelSource& source);
TensorProvider decoded_tensors(const ModelSource& source);

}  // namespace mixtape
