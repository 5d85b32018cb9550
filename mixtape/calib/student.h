// The quantized copy of a model: fitted, trained, written.
#pragma once

#include "mixtape/calib/teacher.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/io/atomic_file.h"
#include "mixtape/quant/quantization_plan.h"

namespace mixtape {

struct Student {
  ModelConfig config;
  Parameters parameters;  // scales and biases in f32
  bool floats_train =
      false;  // float tensors are f32 copies of its own, else the teacher's: not to be changed
};

// The teacher's config, untied where the plan gives embedding and output layer different settings.
ModelConfig student_config(const ModelConfig& teacher, const QuantizationPlan& plan);

// Before its matrices are fitted: float tensors, which are the teacher's.
Student unfitted_student(const Teacher& teacher, const QuantizationPlan& plan);

Buffer copy_of(const Buffer& b);
// The same values in scales, biases and trained float tensors of its own; codes are shared.
Student copy_of(const Student& student);

// After training: scales and biases per group, where the format stores something else that they follow from.
void renew_scales(Student& student);

// Gives the student f32 copies of its float tensors, from the teacher's source, to be trained.
void own_floats(Student& student, const Teacher& teacher, const QuantizationPlan& plan);

// What a written directory holds: scales and biases, and float tensors that trained, rounded to `dtype`.
Parameters with_stored_values(const Student& student, DType dtype);

// Writes a student; see write_quantized_model. Tensors that didn't train come from the source.
void write_student(AtomicDirectory& output, const ModelSource& source, const Student& student,
                   const QuantizationPlan& plan, DType dtype, const RunHooks& hooks = {});

}  // namespace mixtape
