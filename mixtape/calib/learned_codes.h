// Codes that are trained together with scales and biases: real numbers that are rounded on the way forward, the
// gradient passed straight through (ops/latent_codes/latent_codes.h).
#pragma once

#include "mixtape/calib/student.h"

namespace mixtape {

// Gives each quantized matrix whose path begins with `at` latent codes, but not the embedding, which is looked up too:
// (w - bias) / scale of the source's weight where that rounds to the code that was fitted, else that code itself, so
// that what GPTQ chose against the nearest one isn't undone by the first step.
void add_latent_codes(Student& student, const Teacher& teacher, const QuantizationPlan& plan,
                      const std::string& at = "");

// Rounds latent codes to codes and lets them go.
void pack_latent_codes(Student& student, const Device& device);

}  // namespace mixtape
