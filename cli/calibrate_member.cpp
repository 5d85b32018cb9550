#include "cli/calibrate_member.h"

#include <nlohmann/json.hpp>

#include "cli/open_device.h"
#include "cli/shared_run.h"
#include "cli/signals.h"
#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/fingerprint.h"
#include "mixtape/io/tensor_list.h"
#include "mixtape/quant/plan_file.h"

namespace mixtape::cli {
namespace {

class CalibrateMember {
 public:
  CalibrateMember(const CalibrateOptions& options, const Launch& launch)
      : o_(options),
        devices_(open_devices(o_.model.device, launch)),
        opened_(o_.model.open()),
        tape_(devices_->devices()[0]) {}

  int run() {
    return run_as_member(processes(), [this] {
      if (!o_.dry_run) work();
    });
  }

 private:
  void work() {
    SeenStates states(processes(), o_.checkpoint, o_.quantize.out,
                      {{"model", model_fingerprint(*opened_.source)}});
    const Teacher teacher(*opened_.source, o_.model.compute_dtype(opened_.config), o_.stream_teacher, tape_);
    watch_interrupts();
    processes().wait_until(interrupted);
    const QuantizationPlan plan = receive_decisions();
    const CalibrationData data = receive_data(processes());
    take_part_in_calibration(
        teacher, plan, data,
        {.methods = o_.methods(), .gate = !o_.reference_compat, .devices = devices_.get()},
        {.progress = {}, .should_stop = interrupted, .states = &states});
  }

  QuantizationPlan receive_decisions() {
    const std::string where = "what rank 0 decided";
    const nlohmann::json json = receive_json(processes(), where);
    json.at("train").get_to(o_.trained);
    TrainOptions& train = o_.dwq.train;
    json.at("steps").get_to(train.steps);
    json.at("batch").get_to(train.batch_size);
    json.at("validate_every").get_to(train.validate_every);
    const ModelConfig& config = opened_.config;
    return plan_quantization(*opened_.source,
                             planned_options(json.at("plan"), where, tensor_list(config),
                                             config.tie_word_embeddings, opened_.source->where()));
  }

  Processes& processes() { return *devices_->processes(); }

  CalibrateOptions o_;
  std::unique_ptr<DeviceGroup> devices_;
  OpenedModel opened_;
  Tape tape_;
};

}  // namespace

void send_calibration(Processes* processes, const CalibrateOptions& o, const QuantizationPlan& plan,
                      const CalibrationData& data) {
  if (processes == nullptr) return;
  const TrainOptions& train = o.dwq.train;
  const nlohmann::json json = {{"train", o.trained},
                               {"steps", train.steps},
                               {"batch", train.batch_size},
                               {"validate_every", train.validate_every},
                               {"plan", plan_json(plan)}};
  send_text(processes, json.dump());
  send_data(processes, data);
}

int take_part_in_calibrate(const CalibrateOptions& options, const Launch& launch) {
  return CalibrateMember(options, launch).run();
}

}  // namespace mixtape::cli
