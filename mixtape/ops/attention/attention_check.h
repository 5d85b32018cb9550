// The cases that attention is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/attention/attention.h"
#include "mixtape/ops/attention/attention_oracle.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

AttentionOptions options_of(const Device& device, const oracle::AttentionCase& c);
// With the usual scale, 1/sqrt(head_dim).
testing::OpCheck attention_check(const Device& device, DType dtype, oracle::AttentionCase c);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> attention_checks(const Device& device, DType dtype);

}  // namespace mixtape
