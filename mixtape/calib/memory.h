// How much memory a calibration will take, before it starts.
#pragma once

#include "mixtape/calib/recipe.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// What a calibration does, as far as memory goes.
struct MemoryUse {
  std::int64_t batch_tokens = 0;  // of a training or evaluation batch
  std::size_t fits = 1;           // methods that fit: a student each, until the best one is known
  Statistics statistics = Statistics::none;
  std::int64_t statistics_tokens = 0;  // of all rows that they are gathered from
  Learning learning = Learning::scales;
  std::int64_t held_tokens = 0;      // of all rows whose hidden states Learning::blocks holds
  std::int64_t measured_tokens = 0;  // of validation and report rows: the teacher's last activations are kept
  bool checkpoint_blocks = false;
  bool stream_teacher = false;
};

// Bytes of buffers at the fullest moment: teacher, students, and either what fitting one layer takes, or optimizer
// state, activations kept for the backward pass and the largest scratch tensors. An estimate: within about a third of
// what a run then takes.
double predicted_peak_bytes(const ModelConfig& config, const QuantizationPlan& plan, DType compute,
                            const MemoryUse& use, const Device& device);

}  // namespace mixtape
