// Distilled weight quantization: codes stay as they were fitted; scales and biases learn, by gradient, to
// give the teacher's next-token distributions:
//   minimise the mean over positions of KL(softmax(teacher / T) || softmax(student / T))
#pragma once

#include <filesystem>

#include "mixtape/calib/method.h"

namespace mixtape {

struct DwqOptions {
  TrainOptions train;
  KlOptions loss{.temperature = 2.0f, .top_k = 0, .rest_bucket = false};
  // The teacher's top_k largest logits of every training and validation row: written here if the directory
  // doesn't exist, read in each step. Empty: the teacher runs beside the student.
  std::filesystem::path target_dir;
  std::uint64_t seed = 0;        // of the batches
  bool reference_order = false;  // batches as the reference program makes them (reference_recipe.h)
};

Method dwq(const DwqOptions& options);

}  // namespace mixtape
