// The quantized copy of a model: made by plain rounding, trained, written.
#pragma once

#include "mixtape/nn/parameters.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// The teacher's config, untied where the plan gives embedding and output layer different settings.
ModelConfig student_config(const ModelConfig& teacher, const QuantizationPlan& plan);

// The tensors that the plan leaves in float, in `dtype`: what a student takes from a teacher that is not
// loaded.
Parameters load_float_tensors(const ModelSource& source, const ModelConfig& config,
                              const QuantizationPlan& plan, DType dtype, const Device& device);

// Plain rounding (RTN) of every module that the plan quantizes, from the source's own values in f32. Scales
// and biases stay f32; tensors that the plan leaves in float are shared with the teacher. Throws naming the
// tensor, row and column of a weight that is not finite.
Parameters quantize_parameters(const ModelSource& source, const Parameters& teacher,
                               const QuantizationPlan& plan, Rounding rounding, const Device& device);

// The same with scales and biases rounded to `dtype`, as a file holds them.
Parameters with_stored_scales(const Parameters& student, DType dtype, const Device& device);

// Writes a trained student; see write_quantized_model.
void write_student(AtomicDirectory& output, const ModelSource& source, const Parameters& student,
                   const QuantizationPlan& plan, DType dtype);

}  // namespace mixtape
