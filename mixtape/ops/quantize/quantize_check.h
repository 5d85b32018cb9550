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

// Of a weight decoded from codes, and of the gradients of its scales and biases.
inline void set_decoding_bounds(testing::OpCheck& check, AffineParams p) {
  const double group = p.group_size;
  check.forward_bound = {0.51, 1e-38};
  // |dw| is 0.8 on average, codes half the largest: sum |dw*code| stays below group * max_code.
  check.backward_bound = {0.51, (group / 4 + 4) * 0x1p-24 * group * p.max_code()};
}

testing::OpCheck dequantize_affine_check(DType dtype, DType scale_dtype, const Shape& w, AffineParams p);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> dequantize_affine_checks(const Device& device, DType dtype);

}  // namespace mixtape
