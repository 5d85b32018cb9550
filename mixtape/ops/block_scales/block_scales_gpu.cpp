#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/block_scales/block_scales_params.h"

namespace mixtape::gpu {
namespace {

// The whole numbers, where there are any.
Argument sub_scales(const Call& call, const BlockScalesParams& p, std::size_t i) {
  return p.has_sub != 0 ? Argument(call.read(i)) : Argument();
}

void forward(const Call& call) {
  const auto& p = call.params<BlockScalesParams>();
  call.launch(call.dispatch.kernel, grid_for(p.blocks * p.groups), kBlock256, p,
              {call.read(0), sub_scales(call, p, 1), call.write(0)});
}

void backward(const Call& call) {
  const auto& p = call.params<BlockScalesParams>();
  call.launch(call.dispatch.kernel, grid_for(p.blocks), kBlock256, p,
              {call.read(0), call.read(1), sub_scales(call, p, 2), call.write_if(p.wanted, kBlockDd),
               call.write_if(p.wanted, kBlockDu)});
}

MIXTAPE_GPU_LAUNCHER("block_scales_forward", forward);
MIXTAPE_GPU_LAUNCHER("block_scales_backward", backward);

}  // namespace
}  // namespace mixtape::gpu
