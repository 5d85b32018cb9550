// The cases that dequantize_affine is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/quantize/quantize.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// Words of any bits.
inline testing::HostTensor random_codes(const Shape& packed, std::uint64_t seed) {
  return testing::random_indices(packed, seed, std::int64_t{1} << 32);
}

testing::OpCheck dequantize_affine_check(DType dtype, DType scale_dtype, const Shape& w, AffineParams p);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> dequantize_affine_checks(const Device& device, DType dtype);

}  // namespace mixtape
