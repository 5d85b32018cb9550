// Scales, biases and codes that minimise the squared error of each group (ops/fit_affine/fit_affine.h), or of each block
// (ops/fit_blocks/fit_blocks.h), the error of an input channel weighted by the mean square of what it is multiplied with:
//   minimise sum over channels c of E[x_c^2] (w_c - decoded_c)^2
// Without data all channels count alike.
#pragma once

#include "mixtape/calib/method.h"

namespace mixtape {

struct LeastSquaresOptions {
  bool weighted = true;
};

Method least_squares(const LeastSquaresOptions& options = {});

}  // namespace mixtape
