// What kernels of several ops do with a warp or a block: sums of those before, rows of zeros.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {

// The sum of v over the lanes up to this one.
MIXTAPE_DEVICE std::uint32_t lanes_up_to(std::uint32_t v) {
  for (int step = 1; step < kLanes; step *= 2) {
    const std::uint32_t below = lane_shuffle(v, lane() >= step ? lane() - step : lane());
    if (lane() >= step) v += below;
  }
  return v;
}

// The sum of v over the threads before this one; `all` becomes the block's. Whole warps in one dimension;
// scratch holds 32 words, what was in it before must have been read by all.
MIXTAPE_DEVICE std::uint32_t threads_before(std::uint32_t v, Shared<std::uint32_t> scratch,
                                            std::uint32_t& all) {
  const std::uint32_t up_to = lanes_up_to(v);
  if (lane() == kLanes - 1) scratch[warp()] = up_to;
  barrier();
  const int warps = threads_x() / kLanes;
  const std::uint32_t warps_up_to =
      lanes_up_to(lane() < warps ? static_cast<std::uint32_t>(scratch[lane()]) : 0u);
  const std::uint32_t before = lane_shuffle(warps_up_to, warp() > 0 ? warp() - 1 : 0);
  all = lane_shuffle(warps_up_to, warps - 1);
  barrier();
  return up_to - v + (warp() > 0 ? before : 0u);
}

// i / n, in 32 bits where both fit.
MIXTAPE_DEVICE std::int64_t divide(std::int64_t i, std::int64_t n) {
  if (((i | n) >> 32) == 0) return static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(n);
  return i / n;
}

// A warp writes zeros.
template <class T>
MIXTAPE_DEVICE void zero_row(Global<T> row, std::int64_t cols) {
  constexpr int kPack = 16 / sizeof(T);
  if (cols % kPack == 0 && is_aligned(row, 16)) {
    Pack<T, kPack> zeros;
    MIXTAPE_UNROLL
    for (int i = 0; i < kPack; ++i) zeros.v[i] = from_f32<T>(0.0f);
    MIXTAPE_ROLLED
    for (std::int64_t c = lane() * kPack; c < cols; c += kLanes * kPack) store_pack(row + c, zeros);
  } else {
    MIXTAPE_ROLLED
    for (std::int64_t c = lane(); c < cols; c += kLanes) row[c] = from_f32<T>(0.0f);
  }
}

}  // namespace mixtape
