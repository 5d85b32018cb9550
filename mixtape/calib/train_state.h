// What a training run carries from one step to the next, and what it tells at its end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <vector>

#include "mixtape/calib/optimizer.h"
#include "mixtape/io/json_fwd.h"

namespace mixtape {

struct ValidationPoint {
  std::int64_t step = 0;
  double loss = 0.0;
};

struct TrainReport {
  std::int64_t steps_done = 0;
  std::int64_t tokens_seen = 0;
  double learning_rate = 0.0;  // its peak
  double seconds = 0.0;        // of the training steps, validation not counted
  std::vector<double> losses;
  std::vector<ValidationPoint> validation;
  std::int64_t best_step = 0;  // 0: nothing was better than the start
  double best_loss = 0.0;      // of the validation
  bool stopped_early = false;  // by RunHooks::should_stop
  bool diverged = false;       // a loss was not finite: training ended there, with the best state
  std::int64_t empty_batches = 0;
  // [sparse layer][expert]: tokens that each expert saw while training.
  std::map<std::int64_t, std::vector<std::int64_t>> expert_tokens;
};

// All but stopped_early; of a loss that isn't finite that alone. train_report throws what JSON does.
Json to_json(const TrainReport& report);
TrainReport train_report(const Json& json);

struct TrainState {
  Optimizer optimizer;
  TrainReport report = {};

  // A safetensors file that appears whole: the optimizer's tensors, and the report in its metadata.
  void save(const std::filesystem::path& file) const;
  // Throw format, naming file and tensor, for a state of other leaves or no state at all.
  void load(const std::filesystem::path& file) { load(SafetensorsFile::open(file)); }
  void load(const SafetensorsFile& file);
};

}  // namespace mixtape
