// The cases that causal_conv1d is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/causal_conv1d/causal_conv1d_oracle.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

struct ConvCheck {
  oracle::ConvCase c;
  bool bias = false, history = false;
  bool f32_weights = false;  // beside x in 16 bits
};

testing::OpCheck causal_conv1d_check(const Device& device, DType dtype, const ConvCheck& of);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> causal_conv1d_checks(const Device& device, DType dtype);

}  // namespace mixtape
