// The cases that latent_codes is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/latent_codes/latent_codes.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// All codes, and some beyond both ends.
testing::HostTensor random_latent(const Shape& w, std::uint64_t seed, AffineParams p);

testing::OpCheck latent_codes_check(DType dtype, const Shape& w, AffineParams p);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> latent_codes_checks(const Device& device, DType dtype);

}  // namespace mixtape
