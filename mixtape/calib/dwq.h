// Distilled weight quantization: scales and biases, and codes where asked, learn by gradient to give the teacher's
// next-token distributions:
//   minimise the mean over positions of KL(softmax(teacher / T) || softmax(student / T))
#pragma once

#include <filesystem>

#include "mixtape/calib/method.h"

namespace mixtape {

// A step size for a student of this mean KL, in the units of TrainOptions::learning_rate. KL grows with the square of
// the weights' errors, so what scales have to make up for, with its root:
//   0.005 sqrt(kl), within 1e-4 and 0.02
// The factor is measured (bench/results/quality_rates.csv); half and twice of it give nearly the same.
double rate_for_start(double kl);

// A step size for codes that learn, in codes: over the run, warm-up and decay among it, a code whose gradient always
// points the same way comes about half a cell beyond the next one; within 0.002 and 0.012, beyond which the noise of
// single batches moves codes. The smaller the start's mean KL, the sooner that noise is more than what there is to win:
// at most 0.012 (kl / 0.1)^0.2. (From 0.0019 in 20 steps of 2048 tokens, q4_k_m: 0.00177 at 0.001, 0.00170 at 0.003,
// 0.00166 at 0.006; at 0.012, steps of 1024 tokens, no state was better than the start.)
double code_rate_for(std::int64_t steps, double kl);

// Sets the learning rate to that of a start of this mean KL, half of it beside codes that learn, and theirs to
// code_rate_for the steps and that start.
void rate_from_start(TrainOptions& options, double kl, bool trains_codes);

struct DwqOptions {
  TrainOptions train;
  // The rates are those of the student that comes in, where its KL was measured.
  bool rate_from_start = false;
  // Codes learn too (learned_codes.h): 20 more bytes for each weight (value, gradient, two moments, best state), and
  // its decoded value while a batch is worked on.
  bool trains_codes = false;
  KlOptions loss{.temperature = 1.0f, .top_k = 0, .rest_bucket = false};
  // The teacher's top_k largest logits of every training and validation row: written here if the directory
  // doesn't exist, read in each step. Empty: the teacher runs beside the student.
  std::filesystem::path target_dir;
  std::uint64_t seed = 0;        // of the batches
  bool reference_order = false;  // batches as the reference program makes them (reference_recipe.h)
  std::function<void(const TrainState& state)> checkpoint = {};  // as in TrainHooks, of the first device
};

Method dwq(const DwqOptions& options);

}  // namespace mixtape
