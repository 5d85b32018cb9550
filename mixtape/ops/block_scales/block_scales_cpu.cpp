#include <algorithm>
#include <cmath>

#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/core/f16.h"
#include "mixtape/ops/block_scales/block_scales_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape {
namespace {

// What u stands for; NaN for the lowest.
float sub_scale(float u, const BlockScalesParams& p) {
  return std::nearbyint(u > p.lowest ? std::min(u, p.highest) : p.lowest);
}
float outer_scale(float d, const BlockScalesParams& p) { return p.factor * static_cast<float>(f16(d)); }

void block_scales_forward(const HostCall& call) {
  const auto& p = call.params<BlockScalesParams>();
  const float* d = call.read<float>(0);
  const float* u = p.has_sub != 0 ? call.read<float>(1) : nullptr;
  float* y = call.write<float>(0);
  cpu::parallel_for(p.blocks, cpu::row_grain(p.groups), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const float scale = outer_scale(d[b], p);
      for (std::int64_t i = b * p.groups; i < (b + 1) * p.groups; ++i)
        y[i] = u == nullptr ? scale : scale * sub_scale(u[i], p);
    }
  });
}

void put(float value, bool adds, float& out) { out = adds ? out + value : value; }

void block_scales_backward(const HostCall& call) {
  const auto& p = call.params<BlockScalesParams>();
  const float* dy = call.read<float>(0);
  const float* d = call.read<float>(1);
  const float* u = p.has_sub != 0 ? call.read<float>(2) : nullptr;
  float* dd = call.write_if<float>(p.wanted, kBlockDd);
  float* du = call.write_if<float>(p.wanted, kBlockDu);
  const bool adds_dd = (p.accumulate & kBlockDd) != 0, adds_du = (p.accumulate & kBlockDu) != 0;
  cpu::parallel_for(p.blocks, cpu::row_grain(p.groups), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const float scale = outer_scale(d[b], p);
      const std::int64_t first = b * p.groups, last = first + p.groups;
      float sum = 0.0f;
      for (std::int64_t i = first; i < last; ++i) sum += dy[i] * (u == nullptr ? 1.0f : sub_scale(u[i], p));
      if (dd != nullptr) put(p.factor * sum, adds_dd, dd[b]);
      for (std::int64_t i = first; i < last && du != nullptr; ++i) {
        const bool is_inside = u[i] >= p.lowest - 0.5f && u[i] <= p.highest + 0.5f;
        put(is_inside ? scale * dy[i] : 0.0f, adds_du, du[i]);
      }
    }
  });
}

MIXTAPE_HOST_KERNEL("block_scales_forward", block_scales_forward);
MIXTAPE_HOST_KERNEL("block_scales_backward", block_scales_backward);

}  // namespace
}  // namespace mixtape
