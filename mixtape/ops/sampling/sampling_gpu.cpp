#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/sampling/sampling_gpu_params.h"

namespace mixtape::gpu {
namespace {

void argmax(const Call& call) {
  const auto& p = call.params<SamplingParams>();
  if (p.cols <= 1024) return call.launch_same(grid_of(ceil_div(p.rows, 8)), {32, 8, 1});
  call.launch_same(grid_of(p.rows), {1024, 1, 1});
}

void sample(const Call& call) {
  const auto& p = call.params<SamplingParams>();
  const std::int64_t warps = std::min<std::int64_t>(ceil_div(p.cols, 128), 32);
  call.launch_same(grid_of(p.rows), {static_cast<std::uint32_t>(32 * warps), 1, 1});
}

MIXTAPE_GPU_LAUNCHERS("argmax_forward_", argmax);
MIXTAPE_GPU_LAUNCHERS("sample_forward_", sample);

}  // namespace
}  // namespace mixtape::gpu
