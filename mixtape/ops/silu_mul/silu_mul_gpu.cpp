#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/stream_params.h"
#include "mixtape/ops/silu_mul/silu_mul_params.h"

namespace mixtape::gpu {
namespace {

void launch(const Call& call) {
  const int inputs = static_cast<int>(call.dispatch.reads.size());
  const auto bytes = static_cast<std::int64_t>(size_of(call.dtype(0)));
  call.launch_same(grid_of(ceil_div(call.params<SiluMulParams>().count, stream_block(inputs, bytes))),
                   kBlock256);
}

MIXTAPE_GPU_LAUNCHERS("silu_mul_forward_", launch);
MIXTAPE_GPU_LAUNCHERS("silu_mul_backward_", launch);

}  // namespace
}  // namespace mixtape::gpu
