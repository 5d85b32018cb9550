// The cases that grouped_matmul is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/grouped_matmul/grouped_matmul_oracle.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// u32 [E+1], from how many rows each expert has.
inline Buffer upload_offsets(const Device& device, const std::vector<std::int64_t>& sizes) {
  std::vector<std::uint32_t> offsets{0};
  for (const std::int64_t s : sizes) offsets.push_back(offsets.back() + static_cast<std::uint32_t>(s));
  return Buffer::from(device, {static_cast<std::int64_t>(offsets.size())}, offsets);
}

testing::OpCheck grouped_matmul_check(const Device& device, DType dtype, DType out,
                                      const oracle::GroupedMatmulCase& c);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> grouped_matmul_checks(const Device& device, DType dtype);

}  // namespace mixtape
