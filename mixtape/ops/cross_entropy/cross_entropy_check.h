// The cases that cross_entropy is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

// -1 becomes kIgnoreTarget.
inline Buffer upload_targets(const Device& device, const std::vector<std::int64_t>& targets, DType dtype) {
  const testing::Doubles values(targets.begin(), targets.end());
  return testing::upload(device, {dtype, {static_cast<std::int64_t>(targets.size())}, values});
}

// x [rows,cols], normally distributed with standard deviation `scale`; some rows are ignored.
testing::OpCheck cross_entropy_check(const Device& device, DType dtype, DType targets_dtype,
                                     std::int64_t rows, std::int64_t cols, double scale);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> cross_entropy_checks(const Device& device, DType dtype);

}  // namespace mixtape
