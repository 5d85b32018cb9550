// Trains a model's parameters on batches of token rows: the one loop behind DWQ calibration and pre-training.
//   DWQ           scales and biases of a quantized student, codes fixed;
//                 loss = mean over positions of KL(teacher || student)
//   pre-training  every tensor; loss = mean over positions of -log p(next token)
// Adam on f32 masters, warm-up and cosine decay; the state with the best validation loss is kept.
#pragma once

#include <memory>
#include <span>

#include "mixtape/calib/data.h"
#include "mixtape/calib/loss_signal.h"
#include "mixtape/calib/train_loop.h"
#include "mixtape/nn/causal_lm.h"

namespace mixtape {

struct TrainRows {
  std::span<const TokenRow> train, validation;
  BatchOrder order;  // of the training rows
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

// A trainer's run(). Its state is kept as "training" (kept_states.h), and one that is found goes on.
TrainReport train(const ModelConfig& config, Parameters& parameters, DType compute, LossSignal& signal,
                  Tape& tape, const TrainRows& rows, const TrainOptions& options,
                  const TrainHooks& hooks = {});

}  // namespace mixtape
