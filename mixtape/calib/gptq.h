// GPTQ: codes chosen channel by channel, each one making up for the errors of those before it, on the scales of the
// method before (ops/gptq/gptq.h). What is minimised is the error of the module's outputs on the calibration rows:
//   tr((W - Q) H (W - Q)^T),   H = sum over tokens of x x^T, plus damping * mean(diag H) * I
#pragma once

#include "mixtape/calib/method.h"

namespace mixtape {

struct GptqOptions {
  double damping = 0.01;            // ten times as much where H has no factor, up to 1
  std::int64_t least_tokens = 128;  // an expert that saw fewer keeps its codes, and is named
};

// After a method that fits. The embedding keeps its codes: it is looked up too.
Method gptq(const GptqOptions& options = {});

}  // namespace mixtape
