#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/reduce/reduce_params.h"

namespace mixtape::gpu {
namespace {

void forward(const Call& call) { call.launch_same({1, 1, 1}, {1024, 1, 1}); }

void backward(const Call& call) { call.launch_same(grid_for(call.params<ReduceParams>().cols), kBlock256); }

MIXTAPE_GPU_LAUNCHER("masked_mean_forward_f32", forward);
MIXTAPE_GPU_LAUNCHER("masked_mean_backward_f32", backward);

}  // namespace
}  // namespace mixtape::gpu
