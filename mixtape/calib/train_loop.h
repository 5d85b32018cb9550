// The loop of every run of gradient steps: batches in order, warm-up and cosine decay, validation, the best state,
// stops. What it minimises is an Objective.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "mixtape/calib/objective.h"
#include "mixtape/calib/train_state.h"
#include "mixtape/core/run_hooks.h"

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
  bool validate_at_stop = false;    // the state that a stop leaves is measured, and may be the best
  Trainable trainable = Trainable::quantization;
  bool checkpoint_blocks = false;
};

// Throws invalid_argument, naming the first option that is out of range or not finite.
void check(const TrainOptions& options);

// The training rows of each batch of one pass over the data.
using BatchOrder = std::function<std::vector<std::vector<std::size_t>>(std::int64_t pass)>;
// Shuffled by seed and pass; a last incomplete batch is dropped unless it is the only one.
BatchOrder shuffled_batches(std::size_t rows, std::int64_t batch_size, std::uint64_t seed);

struct TrainHooks {
  RunHooks run = {};
  // Called after each step, and its validation where there is one, and where the caller stopped the run: the state may
  // be saved, and a run that loads it goes on with the same bits.
  std::function<void(const TrainState& state)> checkpoint = {};
  // Null: this process alone. Else all members call with the same rows, options and parameters, and each takes its
  // share of the rows of every batch; hooks may differ.
  Communicator* communicator = nullptr;
};

// An optimizer of these leaves of `parameters`, with the units that the options ask for.
Optimizer make_optimizer(const std::vector<NamedVar>& leaves, const Parameters& parameters,
                         const TrainOptions& options);

struct LoopRows {
  std::size_t train, validation;  // how many
  BatchOrder order;               // of the training rows
};

class TrainLoop {
 public:
  // What is passed by reference, and the communicator, must outlive the loop. Throws invalid_argument for options
  // out of range, rows of which one kind is missing, or a batch of fewer rows than there are members.
  TrainLoop(Objective& objective, TrainState& state, const LoopRows& rows, const TrainOptions& options,
            const TrainHooks& hooks);
  TrainLoop(const TrainLoop&) = delete;
  TrainLoop& operator=(const TrainLoop&) = delete;

  // From the state's step to the last one; see Trainer::run. Throws device where members begin or end with different
  // parameters.
  void run();

 private:
  TrainReport& report() const { return state_.report; }
  bool is_done() const;
  bool lacks_validation() const;
  bool is_validated(std::int64_t step) const;
  void step(std::span<const std::size_t> rows);
  void train_step(std::span<const std::size_t> rows);
  void update();
  double rate(std::int64_t step) const;
  void validate();
  void note_validation(const ValidationPoint& point);
  bool is_finite(double loss, const char* what);
  bool stops();
  void tell(std::optional<double> loss, std::optional<double> validation_loss);

  Objective& objective_;
  TrainState& state_;
  LoopRows rows_;
  TrainOptions options_;
  TrainHooks hooks_;
  SingleProcess alone_;
};

}  // namespace mixtape
