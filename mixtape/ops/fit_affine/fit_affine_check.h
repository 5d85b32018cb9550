// The cases that fit_affine is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/fit_affine/fit_affine.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// Values with the tails of Student's t with three degrees of freedom.
testing::HostTensor heavy_tailed_tensor(const Shape& shape, std::uint64_t seed);
// exp of normal values: an input channel's mean square.
testing::HostTensor random_importance(const Shape& shape, std::uint64_t seed);

// Fits, waits, and gives what was written.
QuantizedWeight fit_weight(const Buffer& w, const Buffer& importance, AffineParams p, DType scale_dtype);
// Per group, of the f32 values that the codes decode to; h [cols] or [experts, cols].
testing::Doubles group_errors(const testing::Doubles& w, const testing::Doubles& h,
                              const testing::Doubles& decoded, std::int64_t cols, std::int64_t group_size);

testing::OpCheck fit_affine_check(DType scale_dtype, const testing::HostTensor& w,
                                  const testing::HostTensor& importance, AffineParams p);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> fit_affine_checks(const Device& device, DType dtype);

}  // namespace mixtape
