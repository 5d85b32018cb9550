// Trains a model's parameters on batches of token rows: the one loop behind DWQ calibration and pre-training.
//   DWQ           scales and biases of a quantized student, codes fixed;
//                 loss = mean over positions of KL(teacher || student)
//   pre-training  every tensor; loss = mean over positions of -log p(next token)
// Adam on f32 masters, warm-up and cosine decay; the state with the best validation loss is kept.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mixtape/calib/data.h"
#include "mixtape/calib/loss_signal.h"
#include "mixtape/calib/train_state.h"
#include "mixtape/core/run_hooks.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

struct TrainOptions {
  std::int64_t steps = 200;
  std::int64_t batch_size = 8;
  // Step size of Adam. Relative: in units of each tensor's mean |scale|, so that one value suits models of
  // any size. Absolute: as it is.
  double learning_rate = 0.01;
  bool relative_rate = true;
  double code_rate = 0.008;   // step size of latent codes, in codes
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

// Throws invalid_argument, naming the first option that is out of range or not finite.
void check(const TrainOptions& options);

// The training rows of each batch of one pass over the data.
using BatchOrder = std::function<std::vector<std::vector<std::size_t>>(std::int64_t pass)>;
// Shuffled by seed and pass; a last incomplete batch is dropped unless it is the only one.
BatchOrder shuffled_batches(std::size_t rows, std::int64_t batch_size, std::uint64_t seed);

struct TrainRows {
  std::span<const TokenRow> train, validation;
  BatchOrder order;  // of the training rows
};

struct TrainHooks {
  RunHooks run = {};
  // Called after each step, and its validation where there is one; the state may be saved.
  std::function<void(const TrainState& state)> checkpoint = {};
  // Null: this process alone. Else each member calls with its own rows, as many of them and of batches as the
  // others, and the same options and parameters; hooks may differ.
  Communicator* communicator = nullptr;
};

// One run over TrainOptions::steps steps.
class Trainer {
 public:
  // Trains `parameters` in place; what trains must be f32. Rows are numbered for `signal` as training rows, then
  // validation rows. Everything that is passed by reference, the rows' memory and the communicator must outlive
  // the trainer. Throws invalid_argument for options out of range, or rows of which one kind is missing.
  Trainer(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal, Tape& tape,
          const TrainRows& rows, const TrainOptions& options, const TrainHooks& hooks = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // A state loaded here before run() goes on where it was saved, with the same bits.
  TrainState& state();

  // Steps are reported as the stage "training". Asked to stop, it returns within one batch, without a further
  // validation. A loss that isn't finite ends it: with the best state if that is better than the start, else
  // invalid_argument is thrown, naming the step.
  TrainReport run();

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

// A trainer's run().
TrainReport train(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal,
                  Tape& tape, const TrainRows& rows, const TrainOptions& options,
                  const TrainHooks& hooks = {});

}  // namespace mixtape
