// The whole way from a float model to its quantized student in one call; writing it is another
// (write_student), so that the caller chooses the place and can try a second one.
//
//   const auto source = open_model("Qwen3-0.6B");
//   const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 64}});
//   Tape tape(Device::open("auto"));
//   const Calibration c = calibrate(*source, plan, split_rows(rows, 0, 16, 32, seed), {.method = dwq({})},
//   tape); write_student("Qwen3-0.6B-3bit", *source, c.student, plan, model_dtype(*source));
#pragma once

#include <optional>

#include "mixtape/calib/evaluate.h"
#include "mixtape/calib/method.h"

namespace mixtape {

struct CalibrationOptions {
  Method method;
  std::int64_t evaluation_batch = 8;  // rows
  // Of the source overload alone: activations (auto: compute_dtype), and how the teacher is held.
  std::optional<DType> compute = {};
  bool stream_teacher = false;
};

struct CalibrationReport {
  Evaluation initial;  // of the initial fit, as a file would hold it
  // Of the student, as a file would hold it; unset where the caller stopped the run before it was measured.
  std::optional<Evaluation> result;
  TrainReport training;
  bool stopped_early = false;
};

struct Calibration {
  CalibrationReport report;
  Student student;
};

// Fits a student, measures it on data.report, improves it by the method on data.train and data.validation,
// measures again. Errors: invalid_argument for options, rows or ids that cannot hold, before any work;
// interrupted where the caller stops it before the method has begun to improve the student. Stopped later, it
// returns the best student so far. Stages are reported to `hooks` by name: "evaluating initial fit", "teacher
// targets", "training", "evaluating result".
Calibration calibrate(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& options, const RunHooks& hooks = {});
// The same, the teacher loaded once the options hold.
Calibration calibrate(const ModelSource& source, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& options, Tape& tape, const RunHooks& hooks = {});

// Activations of a model: f32 where it is stored so or doesn't say, else bf16.
DType compute_dtype(const ModelConfig& config);

// The student with the values that a file in `storage` would hold, against the teacher.
Evaluation evaluate_stored(const Student& student, const Teacher& teacher, DType storage,
                           std::span<const TokenRow> rows, std::int64_t batch_size,
                           const RunHooks& hooks = {}, const std::string& stage = "evaluating");

}  // namespace mixtape
