// The cases that gptq is checked with.
#pragma once

#include <vector>

#include "mixtape/ops/gptq/gptq.h"
#include "mixtape/testing/op_check.h"

namespace mixtape {

// A weight, the factor of what its inputs correlate like, and scales and biases whose range is about the
// weight's, so that some t lie beyond it.
struct GptqCase {
  Shape w;                // [..., N, K]
  bool is_shared = true;  // one factor [K, K], or one per matrix
  AffineParams format;
  DType scale_dtype = DType::f32;
};
// {w, factor, scales, biases}
std::vector<testing::HostTensor> inputs_of(const GptqCase& c);

testing::OpCheck gptq_check(const GptqCase& c);
// Those that `mixtape gradcheck` runs.
std::vector<testing::OpCheck> gptq_checks(const Device& device, DType scale_dtype);

}  // namespace mixtape
