// The cases that norm_rope is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/norm_rope/norm_rope.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

struct NormRopeCase {
  DType dtype, weight;
  Shape shape;  // [B, S, H, head_dim]
  std::int64_t pairs;
  RopeOptions options = {};
  bool shares_positions = false;
};

testing::OpCheck norm_rope_check(const Device& device, const NormRopeCase& c);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> norm_rope_checks(const Device& device, DType dtype);

}  // namespace mixtape
