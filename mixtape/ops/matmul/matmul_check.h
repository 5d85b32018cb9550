// The cases that matmul is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/matmul/matmul_oracle.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck matmul_check(DType dtype, DType out, const oracle::MatmulShape& s, const Shape& a,
                              const Shape& b);
// Operands of these shapes, or of the transposed ones.
std::vector<testing::OpCheck> matmul_layouts(DType dtype, DType out, std::int64_t m, std::int64_t n,
                                             std::int64_t k);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> matmul_checks(const Device& device, DType dtype);

}  // namespace mixtape
