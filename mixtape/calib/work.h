// How long a calibration will take, before it starts: its stages' work, and how fast the device does some of it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mixtape/calib/forecast.h"
#include "mixtape/calib/recipe.h"
#include "mixtape/nn/causal_lm.h"
#include "mixtape/quant/quantized_model.h"

namespace mixtape {

// What was measured of a model on its device.
struct Pace {
  double layers = 0.0;   // seconds for each token of a pass through all layers
  double head = 0.0;     // and of the output layer
  double product = 0.0;  // operations per second of one large matrix product, in f32 on a CPU, else in bf16
  double load = 0.0;     // seconds in which all layers are read, where they are streamed
  double fit = 0.0;      // seconds for each weight that all fits take at the least
  double sampled = 0.0;  // seconds for each token that the model writes
};

// Runs a batch of rows of one length through the first eight layers, the first of each kind and the output layer, each
// twice or for a twentieth of a second; and one token each of `sampled` rows, which are written beside each other. Layers of
// a streamed model are read from its files, one at a time.
Pace measure_pace(const CausalLm& model, Tape& tape, std::span<const TokenRow> rows,
                  std::int64_t sampled = 0);
// Its last figure alone, where there is no model.
double measure_product_rate(const Device& device);

// What a calibration does, as far as time goes. Tokens are positions; 0 of what is not done.
struct WorkUse {
  InitialFit fit = InitialFit::gptq;
  Learning learning = Learning::nothing;
  std::int64_t sampled_tokens = 0;   // that the model writes
  std::int64_t measured_tokens = 0;  // on which each module is measured, where bits are chosen
  std::int64_t formats = 0;          // in how many
  std::int64_t statistics_tokens = 0;
  std::int64_t validation_tokens = 0, report_tokens = 0;
  std::int64_t steps = 0, batch_tokens = 0,
               validations = 0;  // of training; of Learning::blocks in each layer
  std::int64_t held_tokens = 0;  // whose hidden states Learning::blocks holds
  std::int64_t part_tokens = 0;  // on which the student's parts are measured (kl_by_part.h)
  bool gate = true;              // stages are measured on the validation rows
  bool checkpoint_blocks = false;
  bool stream_teacher = false;  // read in each of its passes
};

// In the order and by the names in which calibrate() reports them. A guess from a pass's time and from counted
// operations: within a quarter for the runs of docs/sizes.md, which are a CPU's; rows that the model writes are guessed worse.
std::vector<StageTime> expected_stages(const ModelConfig& config, const QuantizationPlan& plan,
                                       const WorkUse& use, const Pace& pace);
// On how many tokens the parts of such a student can be measured for a twentieth of what the calibration does, counted in
// operations: 128 or more, and no more than have 2^26 logits, 2^28 on a GPU.
std::int64_t part_tokens_of(const ModelConfig& config, const QuantizationPlan& plan, const WorkUse& use,
                            const Device& device);
// Of a float model that is trained without a teacher and then measured.
std::vector<StageTime> expected_training(const WorkUse& use, const Pace& pace);

}  // namespace mixtape
