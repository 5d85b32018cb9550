// Distilled weight quantization: scales and biases, and codes where asked, learn by gradient to give the teacher's
// next-token distributions:
//   minimise the mean over positions of KL(softmax(teacher / T) || softmax(student / T))
#pragma once

#include <filesystem>

#include "mixtape/calib/method.h"

namespace mixtape {

// A step size for a student of this mean KL, in the units of TrainOptions::learning_rate. KL grows with the square of
// the weights' errors, so what scales have to make up for, with its root:
//   0.004 sqrt(kl), within 1e-4 and 0.02
// The factor is measured (bench/results/quality.csv); half and twice of it give nearly the same.
double rate_for_start(double kl);
// Of learned codes, in codes: 0.01 sqrt(kl).
double code_rate_for_start(double kl);

struct DwqOptions {
  TrainOptions train;
  // Both rates are those of the student that comes in, where its KL was measured.
  bool rate_from_start = false;
  // Codes learn too (learned_codes.h): 20 more bytes for each weight (value, gradient, two moments, best state), and
  // its decoded value while a batch is worked on.
  bool trains_codes = false;
  KlOptions loss{.temperature = 2.0f, .top_k = 0, .rest_bucket = false};
  // The teacher's top_k largest logits of every training and validation row: written here if the directory
  // doesn't exist, read in each step. Empty: the teacher runs beside the student.
  std::filesystem::path target_dir;
  std::uint64_t seed = 0;        // of the batches
  bool reference_order = false;  // batches as the reference program makes them (reference_recipe.h)
  // As in TrainHooks. Members of a communicator calibrate with the same plan and options, each with its own
  // training rows.
  std::function<void(const TrainState& state)> checkpoint = {};
  Communicator* communicator = nullptr;
};

Method dwq(const DwqOptions& options);

}  // namespace mixtape
