#include "mixtape/ops/cross_entropy/cross_entropy_params.h"
#include "mixtape/ops/cross_entropy/logits_rows_gpu.h"

namespace mixtape::gpu {
namespace {

void forward(const Call& call) {
  const auto& p = call.params<CrossEntropyParams>();
  call.launch(call.dispatch.kernel, grid_of(p.rows), row_threads(p.cols, call.dtype(0), 512), p,
              {call.read(0), call.read(1), call.write(0), call.write(1),
               call.index_errors(p.cols, p.is_signed != 0)});
}

void backward(const Call& call) {
  const auto& p = call.params<CrossEntropyParams>();
  call.launch(call.dispatch.kernel, grid_of(p.rows * row_blocks(p.cols, call.dtype(0), 4)),
              row_threads(p.cols, call.dtype(0), 256), p,
              {call.read(0), call.read(1), call.read(2), call.read(3), call.write(0),
               call.index_errors(p.cols, p.is_signed != 0)});
}

MIXTAPE_GPU_LAUNCHERS("cross_entropy_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("cross_entropy_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
