#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

namespace mixtape::gpu {
namespace {

void cast(const Call& call) { call.launch_same(grid_for(call.params<UnaryParams>().count, 16), kBlock256); }

MIXTAPE_GPU_LAUNCHERS("cast_f32_", cast);
MIXTAPE_GPU_LAUNCHERS("cast_bf16_", cast);
MIXTAPE_GPU_LAUNCHERS("cast_f16_", cast);

}  // namespace
}  // namespace mixtape::gpu
