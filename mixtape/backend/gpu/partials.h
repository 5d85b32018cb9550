// The second half of sums over rows: [blocks, cols] partial sums in f32 become [cols].
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/gpu/partials_params.h"

namespace mixtape {

// dx = (dx if accumulate) + the sum of the blocks. 32 threads take every 32nd block of the same columns, then
// their sums are added in order: blocks of {kPartialsX, 32} threads. `scratch` holds 32 * kPartialCols
// floats.
template <class T>
MIXTAPE_DEVICE void add_partials(const PartialsParams& p, Global<const float> partials, Global<T> dx,
                                 Shared<float> scratch) {
  const std::int64_t first = static_cast<std::int64_t>(block_x()) * kPartialCols;
  const std::int64_t col = first + thread_x() * 4;
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  const bool is_packed = p.cols % 4 == 0 && is_aligned(partials, 16);
  MIXTAPE_UNROLL_4
  for (std::int64_t b = thread_y(); b < p.blocks; b += threads_y()) {
    if (is_packed && col < p.cols) {
      const Pack<float, 4> part = load_pack<4>(partials + (b * p.cols + col));
      MIXTAPE_UNROLL
      for (int c = 0; c < 4; ++c) sum[c] += part.v[c];
    } else {
      MIXTAPE_UNROLL
      for (int c = 0; c < 4; ++c) {
        if (col + c < p.cols) sum[c] += partials[b * p.cols + col + c];
      }
    }
  }
  MIXTAPE_UNROLL
  for (int c = 0; c < 4; ++c) scratch[thread_y() * kPartialCols + thread_x() * 4 + c] = sum[c];
  barrier();
  const std::int64_t out = first + flat_thread();
  if (flat_thread() >= kPartialCols || out >= p.cols) return;
  float total = 0.0f;
  for (int y = 0; y < threads_y(); ++y) total += scratch[y * kPartialCols + flat_thread()];
  dx[out] = from_f32<T>(p.accumulate != 0 ? to_f32(dx[out]) + total : total);
}

}  // namespace mixtape
