#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/stream_params.h"
#include "mixtape/ops/clamped_swiglu/clamped_swiglu_params.h"

namespace mixtape::gpu {
namespace {

Grid grid(const Call& call) {
  const int inputs = static_cast<int>(call.dispatch.reads.size());
  const auto bytes = static_cast<std::int64_t>(size_of(call.dtype(0)));
  return grid_of(ceil_div(call.params<ClampedSwigluParams>().count, stream_block(inputs, bytes)));
}

void forward(const Call& call) { call.launch_same(grid(call), kBlock256); }

void backward(const Call& call) {
  const auto& p = call.params<ClampedSwigluParams>();
  call.launch(call.dispatch.kernel, grid(call), kBlock256, p,
              {call.read(0), call.read(1), call.read(2), call.write_if(p.wanted, p.dgate),
               call.write_if(p.wanted, p.dup)});
}

MIXTAPE_GPU_LAUNCHERS("clamped_swiglu_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("clamped_swiglu_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
