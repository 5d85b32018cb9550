// What the host kernel of fit_blocks needs that doesn't depend on the instruction set.
#pragma once

#include <atomic>
#include <limits>
#include <vector>

#include "mixtape/ops/fit_blocks/fit_blocks_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape::cpu {

// The importance of every column [experts, cols], each block's largest brought near 1; ones where none was given or all
// of a block are 0. Throws invalid_argument for the first that is negative or not finite.
std::vector<float> block_importance(const HostCall& call, const FitBlocksParams& p);

// Where a weight's numbers go; those that the type hasn't are let go.
class BlockOutputs {
 public:
  BlockOutputs(const HostCall& call, const BlockShape& p);
  void put_outer(std::int64_t block, float d, float e);
  void put_whole(std::int64_t group, float scale, float bias);

 private:
  float *scales_, *biases_, *sub_scales_, *sub_biases_;
};

// The lowest element of w at which something can't be fitted; threads share it.
class LowestPosition {
 public:
  void note(std::int64_t position);
  // Throws what was noted.
  void refuse(const HostCall& call, const FitBlocksParams& p) const;

 private:
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> position_ = kNone;
};

}  // namespace mixtape::cpu
