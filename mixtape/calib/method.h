// A way to a quantized model: an initial fit of each matrix, and what improves the whole. One header in
// calib/ for each, of the form
//   struct XOptions {...};
//   Method x(const XOptions& options);
#pragma once

#include <string>

#include "mixtape/calib/data.h"
#include "mixtape/calib/student.h"
#include "mixtape/calib/trainer.h"

namespace mixtape {

struct MethodInput {
  const Teacher& teacher;
  const QuantizationPlan& plan;
  const CalibrationData& data;
  const RunHooks& hooks;
};

struct Method {
  std::string name;  // "dwq"
  InitialFit fit;
  bool trains_floats = false;  // the student gets f32 copies of its float tensors
  // Throws invalid_argument for options that cannot hold for this model and data. Called before anything is
  // loaded; data without rows is not known yet.
  std::function<void(const ModelSource& source, const CalibrationData& data)> check = {};
  // Changes the fitted student in place. Null: the fit is the result.
  std::function<TrainReport(const MethodInput& input, Student& student)> improve = {};
};

}  // namespace mixtape
