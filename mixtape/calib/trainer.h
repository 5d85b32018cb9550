// Trains a model's parameters on batches of token rows: the one loop behind DWQ calibration and pre-training.
//   DWQ           scales and biases of a quantized student, codes fixed;
//                 loss = mean over positions of KL(teacher || student)
//   pre-training  every tensor; loss = mean over positions of -log p(next token)
// Adam on f32 masters, warm-up and cosine decay; the state with the best validation loss is kept.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/calib/loss_signal.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

struct TrainOptions {
  std::int64_t steps = 200;
  std::int64_t batch_size = 8;
  // Step size of Adam. Relative: in units of each tensor's mean |scale|, so that one value suits models of
  // any size. Absolute: as it is.
  double learning_rate = 0.01;
  bool relative_rate = true;
  double warmup_share = 0.1;  // of the steps
  double final_rate_share = 0.0;
  bool constant_rate = false;       // no warm-up, no decay
  double weight_decay = 0.0;        // decoupled
  double clip_norm = 0.0;           // 0: no clipping
  std::int64_t validate_every = 0;  // steps; 0: ten times in all
  bool keep_best = true;            // else the last state, as the reference program does
  Trainable trainable = Trainable::quantization;
  bool checkpoint_blocks = false;
};

struct ValidationPoint {
  std::int64_t step = 0;
  double loss = 0.0;
};

struct TrainReport {
  std::int64_t steps_done = 0;
  std::int64_t tokens_seen = 0;
  double seconds = 0.0;  // of the training steps, validation not counted
  std::vector<double> losses;
  std::vector<ValidationPoint> validation;
  std::int64_t best_step = 0;  // 0: nothing was better than the start
  bool stopped_early = false;
  std::int64_t empty_batches = 0;
  // [sparse layer][expert]: tokens that each expert saw while training.
  std::map<std::int64_t, std::vector<std::int64_t>> expert_tokens;
};

struct TrainProgress {
  std::int64_t step = 0, steps = 0;
  double loss = 0.0;
  double tokens_per_second = 0.0;
  const ValidationPoint* validation = nullptr;  // set where this call reports a validation
};

struct TrainHooks {
  std::function<void(const TrainProgress&)> progress;
  std::function<bool()> should_stop;  // asked after each step
};

// The training rows of each batch of one pass over the data.
using BatchOrder = std::function<std::vector<std::vector<std::size_t>>(std::int64_t pass)>;
// Shuffled by seed and pass; a last incomplete batch is dropped unless it is the only one.
BatchOrder shuffled_batches(std::size_t rows, std::int64_t batch_size, std::uint64_t seed);

// Trains `parameters` in place; what trains must be f32. Rows are numbered for `signal` as training rows,
// then validation rows.
TrainReport train(const ModelConfig& config, const Parameters& parameters, DType compute, LossSignal& signal,
                  Tape& tape, std::span<const TokenRow> train_rows, std::span<const TokenRow> validation_rows,
                  const BatchOrder& order, const TrainOptions& options, const TrainHooks& hooks = {});

}  // namespace mixtape
