// The cases that rope is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/rope/rope.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// 10000^(-i/pairs), f32.
testing::HostTensor rope_frequencies(std::int64_t pairs);

struct RopeCase {
  DType dtype;
  Shape shape;  // [B, S, H, head_dim]
  std::int64_t pairs;
  RopeOptions options;
  std::int64_t max_position = 100;
  bool shares_positions = false;
};

testing::OpCheck rope_check(const Device& device, const RopeCase& c);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> rope_checks(const Device& device, DType dtype);

}  // namespace mixtape
