#pragma once

#include "mixtape/ops/adam/adam_params.h"

namespace mixtape {

struct AdamTensorParams {
  AdamParams options;
  std::int64_t count;
  std::int64_t tensor;  // whose unit counts
};

struct SquaresParams {
  std::int64_t count;  // of elements, or of sums
};

}  // namespace mixtape
