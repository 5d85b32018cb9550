// The quantized copy of a model: fitted, trained, written.
#pragma once

#include "mixtape/calib/initial_fit.h"
#include "mixtape/calib/teacher.h"
#include "mixtape/core/run_hooks.h"

namespace mixtape {

struct Student {
  ModelConfig config;
  Parameters parameters;  // scales and biases in f32
  bool floats_train =
      false;  // float tensors are f32 copies of its own, else the teacher's: not to be changed
};

// The teacher's config, untied where the plan gives embedding and output layer different settings.
ModelConfig student_config(const ModelConfig& teacher, const QuantizationPlan& plan);

// Fits every module that the plan quantizes to the source's own values in f32. Errors are those of `fit`;
// interrupted between modules.
Student fit_student(const Teacher& teacher, const QuantizationPlan& plan, const InitialFit& fit,
                    bool floats_train = false, const RunHooks& hooks = {});

// What a written directory holds: scales and biases, and float tensors that trained, rounded to `dtype`.
Parameters with_stored_values(const Student& student, DType dtype);

// Writes a student; see write_quantized_model. Tensors that didn't train come from the source.
void write_student(AtomicDirectory& output, const ModelSource& source, const Student& student,
                   const QuantizationPlan& plan, DType dtype, const RunHooks& hooks = {});

}  // namespace mixtape
