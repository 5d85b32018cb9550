#pragma once

#include <cstdint>

#include "mixtape/ops/fit_blocks/fit_blocks_params.h"

namespace mixtape {

// Weights that a block of threads searches at once, a block of a row per thread; at most 256 threads. Rows are padded,
// so that neither threads nor columns meet in a bank.
inline constexpr int kFitBlockWeights = 8192;
inline constexpr int kFitBlockMemory = kFitBlockWeights + 256;

struct FitBlocksGpuParams {
  std::int64_t experts;
  std::int64_t rows;  // of an expert
  std::int64_t cols;
  std::int64_t row_blocks;  // of an expert
  BlockShape shape;
  std::uint32_t has_importance;
  std::uint32_t searches;
};

}  // namespace mixtape
