// Geometry of kernels over rows of logits.
#pragma once

#include <algorithm>

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

// Threads that share a row of `cols` elements, a pack of 16 bytes each, at most `most`.
inline Grid row_threads(std::int64_t cols, DType dtype, std::int64_t most) {
  const std::int64_t packs = ceil_div(cols * static_cast<std::int64_t>(size_of(dtype)), 16);
  return {static_cast<std::uint32_t>(std::min(most, ceil_div(packs, 32) * 32)), 1, 1};
}

// Blocks of 256 threads per row where each element is used once, `packs` of 16 bytes per thread.
inline std::int64_t row_blocks(std::int64_t cols, DType dtype, std::int64_t packs) {
  return ceil_div(cols * static_cast<std::int64_t>(size_of(dtype)), 256 * packs * 16);
}

}  // namespace mixtape::gpu
