// A student's tensors, for what writes it.
#pragma once

#include "mixtape/calib/student.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// The student must outlive it.
TensorProvider tensors_of(const Student& student);

}  // namespace mixtape
