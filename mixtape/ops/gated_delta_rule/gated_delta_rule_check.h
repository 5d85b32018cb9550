// The cases that gated_delta_rule is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/gated_delta_rule/gated_delta_rule_oracle.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// q, k, v, g, beta and, if wanted, an initial state: keys of about length 1, gates as a model has them.
std::vector<testing::HostTensor> delta_tensors(DType dtype, const oracle::DeltaCase& c, bool initial);
// The same as the oracle takes them.
template <class T>
oracle::DeltaInputs<T> delta_inputs(const std::vector<std::vector<T>>& v) {
  return {v[0], v[1], v[2], v[3], v[4], v.size() > 5 ? v[5] : std::vector<T>()};
}
// The contract's bounds: of y and the final state, and of the gradients.
struct DeltaBounds {
  double forward, backward;
};
DeltaBounds delta_bounds(const oracle::DeltaCase& c, const std::vector<testing::HostTensor>& inputs);

testing::OpCheck gated_delta_rule_check(DType dtype, const oracle::DeltaCase& c, bool initial);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> gated_delta_rule_checks(const Device& device, DType dtype);

}  // namespace mixtape
