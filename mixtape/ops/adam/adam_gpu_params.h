#pragma once

#include "mixtape/ops/adam/adam_params.h"

namespace mixtape {

// Tensors of one launch; a block takes kAdamLaunchBlock elements of one of them.
inline constexpr int kAdamTensors = 8;
inline constexpr std::int64_t kAdamPack = 8;  // elements of a thread
inline constexpr std::int64_t kAdamLaunchBlock = 256 * kAdamPack;

struct AdamGroupParams {
  AdamParams options;
  std::int64_t first_tensor;                // whose unit counts for the first one
  std::int64_t counts[kAdamTensors];        // elements, 0: none
  std::int64_t first_blocks[kAdamTensors];  // those of a tensor begin here
};

struct SquaresParams {
  std::int64_t count;  // of elements, or of sums
};

}  // namespace mixtape
