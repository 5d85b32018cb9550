#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/elementwise/select_params.h"

namespace mixtape::gpu {
namespace {

// One element per thread.
template <class P>
void each(const Call& call) {
  call.launch_same(grid_for(call.params<P>().count), kBlock256);
}

MIXTAPE_GPU_LAUNCHERS("compare_forward_", each<CompareParams>);
MIXTAPE_GPU_LAUNCHER("compare_forward_i32", each<CompareParams>);
MIXTAPE_GPU_LAUNCHER("compare_forward_u32", each<CompareParams>);
MIXTAPE_GPU_LAUNCHER("compare_forward_u8", each<CompareParams>);
MIXTAPE_GPU_LAUNCHER("compare_forward_u16", each<CompareParams>);
MIXTAPE_GPU_LAUNCHER("where_forward_1_bytes", each<WhereParams>);
MIXTAPE_GPU_LAUNCHER("where_forward_2_bytes", each<WhereParams>);
MIXTAPE_GPU_LAUNCHER("where_forward_4_bytes", each<WhereParams>);
MIXTAPE_GPU_LAUNCHERS("where_backward_", each<WhereBackwardParams>);

}  // namespace
}  // namespace mixtape::gpu
