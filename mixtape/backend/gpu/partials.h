// The second half of sums over rows: [blocks, cols] partial sums in f32 become [cols].
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/partials_params.h"

namespace mixtape {

// dx = (dx if accumulate) + the sum of the blocks. threads_y threads take every threads_y-th block of the same
// columns; those of a warp are added in pairs, then the warps' sums in order. `scratch` holds kPartialScratch floats.
template <class T>
MIXTAPE_DEVICE void add_partials(const PartialsParams& p, Global<const float> partials, Global<T> dx,
                                 Shared<float> scratch) {
  const int cols = threads_x() * kPartialPack;
  const std::int64_t first = static_cast<std::int64_t>(block_x()) * cols,
                     col = first + thread_x() * kPartialPack;
  float sum[kPartialPack] = {0.0f, 0.0f, 0.0f, 0.0f};
  const bool is_packed = p.cols % kPartialPack == 0 && is_aligned(partials, 16);
  MIXTAPE_UNROLL_4
  for (std::int64_t b = thread_y(); b < p.blocks; b += threads_y()) {
    if (is_packed && col < p.cols) {
      const Pack<float, kPartialPack> part = load_pack<kPartialPack>(partials + (b * p.cols + col));
      MIXTAPE_UNROLL
      for (int c = 0; c < kPartialPack; ++c) sum[c] += part.v[c];
    } else {
      MIXTAPE_UNROLL
      for (int c = 0; c < kPartialPack; ++c) {
        if (col + c < p.cols) sum[c] += partials[b * p.cols + col + c];
      }
    }
  }
  for (int mask = threads_x(); mask < kLanes; mask *= 2) {
    MIXTAPE_UNROLL
    for (int c = 0; c < kPartialPack; ++c) sum[c] += lane_xor(sum[c], mask);
  }
  if (lane() < threads_x()) {
    MIXTAPE_UNROLL
    for (int c = 0; c < kPartialPack; ++c) scratch[warp() * cols + thread_x() * kPartialPack + c] = sum[c];
  }
  barrier();
  const std::int64_t out = first + flat_thread();
  if (flat_thread() >= cols || out >= p.cols) return;
  float total = 0.0f;
  for (int w = 0; w < block_threads() / kLanes; ++w) total += scratch[w * cols + flat_thread()];
  dx[out] = from_f32<T>(p.accumulate != 0 ? to_f32(dx[out]) + total : total);
}

}  // namespace mixtape
