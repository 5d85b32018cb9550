// The cases that fit_affine is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/fit_affine/fit_affine.h"
#include "mixtape/ops/fit_affine/fit_inputs_check.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// Fits, waits, and gives what was written.
QuantizedWeight fit_weight(const Buffer& w, const Buffer& importance, AffineParams p, DType scale_dtype);

testing::OpCheck fit_affine_check(DType scale_dtype, const testing::HostTensor& w,
                                  const testing::HostTensor& importance, AffineParams p);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> fit_affine_checks(const Device& device, DType dtype);

}  // namespace mixtape
