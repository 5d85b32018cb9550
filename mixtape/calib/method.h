// A stage on the way to a quantized model: it fits each matrix by itself, or improves the whole. One header in
// calib/ for each, of the form
//   struct XOptions {...};
//   Method x(const XOptions& options);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/calib/input_statistics.h"
#include "mixtape/calib/student.h"
#include "mixtape/calib/trainer.h"

namespace mixtape {

struct FitInput {
  const PlannedModule& module;
  const Buffer& w;                  // f32 [..., N, K]
  const InputStatistics* inputs;    // null where there is no data, or the module multiplies nothing
  const QuantizedWeight* previous;  // by the method before; null for the first
  DType storage;                    // of scales and biases in a file
  std::vector<std::string>& notes;  // what the user should hear of this module: "layer, expert 3: ..."
};

struct MethodInput {
  const Teacher& teacher;
  const QuantizationPlan& plan;
  const CalibrationData& data;
  const RunHooks& hooks;
  std::optional<double>
      start_kl;  // of the student that comes in, mean on the validation rows; unset: not measured
  // Of several devices that improve copies of the student, with the same input but for teacher and hooks; null: none.
  Communicator* communicator = nullptr;
};

struct Method {
  std::string name;  // "dwq"
  // Of a method that fits: the module's weight in the format that the plan says; scales and biases come in f32,
  // with values that `storage` holds. Throws, naming the module's tensor, row and column, for a weight that is not
  // finite.
  std::function<QuantizedWeight(const FitInput& input)> fit = {};
  Statistics statistics = Statistics::none;  // that the fit makes use of
  bool follows = false;  // it is given a weight that makes up for the layers below: following.h
  // Of a method that improves: changes the student in place.
  std::function<TrainReport(const MethodInput& input, Student& student)> improve = {};
  // Throws invalid_argument for options that cannot hold for this model and data. Called before anything is
  // loaded; data without rows is not known yet.
  std::function<void(const ModelSource& source, const CalibrationData& data)> check = {};
};

}  // namespace mixtape
