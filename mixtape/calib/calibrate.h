// The whole way from a float model to its quantized student in one call; writing it is another
// (write_student), so that the caller chooses the place and can try a second one.
//
//   const auto source = open_model("Qwen3-0.6B");
//   const QuantizationPlan plan = plan_quantization(*source, {.params = {3, 64}});
//   Tape tape(Device::open("auto"));
//   const Calibration c = calibrate(*source, plan, split_rows(rows, 0, 16, 32, seed),
//                                   {.methods = {plain_rounding(), least_squares(), gptq(), dwq({})}}, tape);
//   write_student("Qwen3-0.6B-3bit", *source, c.student, plan, model_dtype(*source));
#pragma once

#include <optional>

#include "mixtape/calib/evaluate.h"
#include "mixtape/calib/method.h"
#include "mixtape/runtime/device_group.h"

namespace mixtape {

struct CalibrationOptions {
  std::vector<Method> methods;  // one or more that fit, then any that improve
  // The result of each method is measured on the validation rows, and kept if its mean KL is lower than that of the
  // best before it. Else, or without validation rows, each method takes up what the one before it made.
  bool gate = true;
  std::int64_t evaluation_batch = 8;   // rows
  std::int64_t statistics_rows = 128;  // training rows that input statistics are gathered from, at most
  std::function<void(const LayerStatistics&)> on_statistics = {};
  // That share the rows of each step of methods that improve; the rest is done on the first one of the first process,
  // which is the teacher's. Null: the teacher's alone.
  DeviceGroup* devices = nullptr;
  // Of the source overload alone: activations (auto: compute_dtype), and how the teacher is held.
  std::optional<DType> compute = {};
  bool stream_teacher = false;
};

struct StageReport {
  std::string method;
  double seconds = 0.0;  // of the work, its measurement not counted
  std::optional<KlStatistics>
      kl;  // on the validation rows, as a file would hold the student; unset: not measured
  // KL minus that of the best stage before it, position by position; unset where there is none.
  std::optional<Estimate> change = {};
  bool kept = false;  // it was the best one when it ended
  std::vector<std::string> notes;
};

struct CalibrationReport {
  Evaluation initial;  // of the first method's fit, on the report rows, as a file would hold it
  // Of the student, as a file would hold it; unset where the caller stopped the run before it was measured.
  std::optional<Evaluation> result;
  std::vector<StageReport> stages;
  TrainReport training;  // of the last method that trained
  bool stopped_early = false;
};

struct Calibration {
  CalibrationReport report;
  Student student;
};

// Fits a student by each method that fits, on data.train, measures the first one on data.report, improves the best
// one by the other methods, and measures the result. Errors: invalid_argument for options, rows or ids that cannot
// hold, before any work; interrupted where the caller stops it before a method has begun to improve the student.
// Stopped later, it returns the best student so far. Stages are reported to `hooks` by name: "input statistics",
// "fitting", "evaluating initial fit", "evaluating <method>", "teacher targets", "training", "evaluating result".
Calibration calibrate(const Teacher& teacher, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& options, const RunHooks& hooks = {});
// The same, the teacher loaded once the options hold.
Calibration calibrate(const ModelSource& source, const QuantizationPlan& plan, const CalibrationData& data,
                      const CalibrationOptions& options, Tape& tape, const RunHooks& hooks = {});

// What the other processes of options.devices do while the first one is in calibrate: their part of its steps. Teacher,
// plan, data and methods are the same as there; the teacher is on the first device of this process. Comes back where
// the first one begins with nothing but to measure its result. Of `hooks`, should_stop is asked during steps, where it
// stops all, and `states` are found and left as they are. Throws the errors of the other processes too.
void take_part_in_calibration(const Teacher& teacher, const QuantizationPlan& plan,
                              const CalibrationData& data, const CalibrationOptions& options,
                              const RunHooks& hooks = {});

// Activations of a model: f32 where it is stored so or doesn't say, else bf16.
DType compute_dtype(const ModelConfig& config);
// One type for several, so that their figures compare: f32 where that of any of them is.
DType common_compute_dtype(const std::vector<const ModelSource*>& models);

// The student with the values that a file in `storage` would hold, against the teacher.
Evaluation evaluate_stored(const Student& student, const Teacher& teacher, DType storage,
                           std::span<const TokenRow> rows, std::int64_t batch_size,
                           const RunHooks& hooks = {}, const std::string& stage = "evaluating");
// The same, where `reference` holds the teacher.
Evaluation evaluate_stored(const Student& student, const Teacher& teacher, Reference& reference,
                           DType storage, std::span<const TokenRow> rows, std::int64_t batch_size,
                           const RunHooks& hooks = {}, const std::string& stage = "evaluating");

}  // namespace mixtape
