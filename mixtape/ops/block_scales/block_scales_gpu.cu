#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/block_scales/block_scales_params.h"

namespace mixtape {

// What u stands for; NaN for the lowest.
MIXTAPE_DEVICE float sub_scale(const BlockScalesParams& p, float u) {
  return rint_f32(u > p.lowest ? (u < p.highest ? u : p.highest) : p.lowest);
}
MIXTAPE_DEVICE float outer_scale(const BlockScalesParams& p, float d) {
  return p.factor * to_f32(from_f32<f16>(d));
}

// A group per thread.
MIXTAPE_KERNEL(block_scales_forward, 256, BlockScalesParams p, Global<const float> d, Global<const float> u,
               Global<float> y) {
  await_earlier();
  const std::int64_t i = global_thread();
  if (i >= p.blocks * p.groups) return;
  const float scale = outer_scale(p, d[i / p.groups]);
  y[i] = p.has_sub != 0 ? scale * sub_scale(p, u[i]) : scale;
}

// A block per thread.
MIXTAPE_KERNEL(block_scales_backward, 256, BlockScalesParams p, Global<const float> dy, Global<const float> d,
               Global<const float> u, Global<float> dd, Global<float> du) {
  await_earlier();
  const std::int64_t b = global_thread();
  if (b >= p.blocks) return;
  const float scale = outer_scale(p, d[b]);
  const std::int64_t first = b * p.groups, last = first + p.groups;
  if ((p.wanted & kBlockDd) != 0) {
    float sum = 0.0f;
    for (std::int64_t i = first; i < last; ++i) sum += dy[i] * (p.has_sub != 0 ? sub_scale(p, u[i]) : 1.0f);
    const float step = p.factor * sum;
    dd[b] = (p.accumulate & kBlockDd) != 0 ? dd[b] + step : step;
  }
  if ((p.wanted & kBlockDu) == 0) return;
  for (std::int64_t i = first; i < last; ++i) {
    const bool is_inside = u[i] >= p.lowest - 0.5f && u[i] <= p.highest + 0.5f;
    const float step = is_inside ? scale * dy[i] : 0.0f;
    du[i] = (p.accumulate & kBlockDu) != 0 ? du[i] + step : step;
  }
}

}  // namespace mixtape
