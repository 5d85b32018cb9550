// How much work a calibration may cost: which methods, and how long they train.
#pragma once

#include <cstdint>
#include <vector>

#include "mixtape/calib/calibrate.h"
#include "mixtape/calib/dwq.h"
#include "mixtape/calib/sensitivity.h"
#include "mixtape/ops/quantize/affine.h"

namespace mixtape {

// The fit of every matrix before anything trains. Each one goes on from the one before it; calibrate keeps the best.
enum class InitialFit {
  rounding,       // MLX's rule alone
  least_squares,  // and least squares, channels weighted by importance
  gptq,           // and codes chosen with error feedback
};
enum class Effort {
  fast,  // all fits, no training
  good,  // and DWQ, of codes too where the model is small enough for that
  best,  // and four times the steps
};

// What learns after the fits.
enum class Learning {
  nothing,
  scales,  // and biases (dwq.h)
  blocks,  // codes of one layer after the other (block_codes.h), then scales
  codes,   // all codes together, with scales
};

// Weights that a token is multiplied with. An embedding is looked up, but for a tied one, which is the output layer too.
double weights_per_token(const ModelConfig& config);

// With GPTQ the fits make up for the layers below (following.h) where no codes learn afterwards: those that do make up
// for the same errors.
std::vector<Method> fits(InitialFit fit, Rounding rounding = Rounding::gpu, Learning next = Learning::codes);

struct Training {
  std::int64_t batch_size = 0, steps = 0;
  std::int64_t validate_every = 0;  // steps: ten times in all, four times where the steps are few and dear
  Learning learning = Learning::nothing;
};

// From how many rows of `length` tokens input statistics are gathered: 128, on a CPU 32 or more where that many would
// be more than about 1e13 operations (a minute on two cores).
std::int64_t statistics_rows_of(const ModelConfig& config, std::int64_t length, const Device& device);

// How many rows of `length` tokens a model samples at a time: 32 on a CPU; on a GPU, which gives next to as many steps a
// second for more, up to 256 whose keys and values, in 16 bits, take 2 GB at most.
std::int64_t sampled_rows_of(const ModelConfig& config, std::int64_t length, const Device& device);

// Of `good` and `best` on rows of `length` tokens. A step costs 8 operations for each weight that a token passes, and
// good spends about 6e13 on a CPU (five minutes on two cores) and 2e16 on a GPU, in 20 to 200 steps. All codes learn
// together in models of up to 250 million weights on a CPU and a billion on a GPU: they take 22 bytes each. In larger
// ones they learn layer by layer, as many steps in each, which costs as much again.
Training training_of(Effort effort, const ModelConfig& config, std::int64_t length, const Device& device);

// The methods that train so; `dwq` has the settings of all of them.
std::vector<Method> training_methods(Learning learning, DwqOptions dwq);

// All that an effort means for a model and rows of `length` tokens: the fits, then what trains, at the rates that the
// start's KL asks for, batches by `seed`.
CalibrationOptions calibration_options(Effort effort, const ModelConfig& config, std::int64_t length,
                                       const Device& device, std::uint64_t seed = 0);

// Where bits are chosen: in which formats each module's KL is measured and on how many rows of `length` tokens. Three
// formats and 8 rows; on a CPU 3 bits alone and 1 to 8 rows where that would be more than about 3e13 operations (five
// minutes on two cores).
// Of affine formats, or with `in_blocks` of GGUF's types.
SensitivityOptions sensitivity_of(const ModelConfig& config, std::int64_t length, const Device& device,
                                  bool in_blocks = false);

}  // namespace mixtape
