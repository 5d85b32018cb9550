// The cases that embedding is checked with.
#pragma once

#include <vector>

#include "mixtape/testing/op_check.h"

namespace mixtape {

testing::OpCheck embedding_check(const Device& device, DType dtype, std::int64_t rows, std::int64_t hidden,
                                 const testing::HostTensor& ids);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> embedding_checks(const Device& device, DType dtype);

}  // namespace mixtape
