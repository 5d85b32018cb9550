// The cases that argmax and sample are checked with.
#pragma once

#include <vector>

#include "mixtape/ops/sampling/sampling.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck argmax_check(DType dtype, std::int64_t rows, std::int64_t cols);
testing::OpCheck sample_check(DType dtype, std::int64_t rows, std::int64_t cols,
                              const SamplingOptions& options);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> argmax_checks(const Device& device, DType dtype);
std::vector<testing::OpCheck> sample_checks(const Device& device, DType dtype);

}  // namespace mixtape
