// What a calibration will take, told before it starts.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/calibrate_options.h"
#include "cli/training_hooks.h"

namespace mixtape::cli {

class Prediction {
 public:
  // What is passed by reference must outlive it; rows that are yet to be sampled are among the data as if they were
  // there.
  Prediction(const CalibrateOptions& options, const OpenedModel& opened, const QuantizationPlan& plan,
             DType compute, Tape& tape, std::int64_t device_count)
      : o_(options),
        opened_(opened),
        plan_(plan),
        compute_(compute),
        tape_(tape),
        device_count_(device_count) {}

  // Prints the peak memory.
  void tell_memory(const CalibrationData& data);
  // Times a batch of rows in the model and prints the time of all stages, as long as the machine is as it is meanwhile.
  void tell_time(const CausalLm& model, const CalibrationData& data);
  // The same where no model is loaded: a layer of each kind is.
  void tell_time(const CalibrationData& data);
  // Lines of progress show the time left of all stages.
  void show_in(StageDisplay& display) const;
  nlohmann::json figures() const;

 private:
  std::vector<TokenRow> timed_rows(const CalibrationData& data) const;

  const CalibrateOptions& o_;
  const OpenedModel& opened_;
  const QuantizationPlan& plan_;
  DType compute_;
  Tape& tape_;
  std::int64_t device_count_;  // that share a batch; what is told is of the first
  Pace pace_;
  std::vector<StageTime> stages_;
  double bytes_ = 0.0;
};

}  // namespace mixtape::cli
