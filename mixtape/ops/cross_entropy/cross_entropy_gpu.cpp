// Which kernel runs for loss and gradient together, the first that fits:
//   cross_entropy_forward_backward_*_cluster<n>_<packs>  cross_entropy_cuda.cu: n blocks hold a row, which is
//       read once. Hopper; rows of whole, aligned 16-byte packs, up to 8 blocks of 20480 elements.
//   cross_entropy_forward_*, cross_entropy_backward_*  cross_entropy_gpu.cu: two launches, a row is read
//       twice. Everything else, and where only one of the two is asked for.
#include "mixtape/backend/gpu/logits_rows.h"
#include "mixtape/backend/gpu/rows.h"
#include "mixtape/backend/gpu/variants.h"
#include "mixtape/ops/cross_entropy/cross_entropy_params.h"

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

// In one launch where a cluster can hold the row, else forward and backward.
void both(const Call& call) {
  const auto& p = call.params<CrossEntropyParams>();
  const Buffer &x = call.read(0), &targets = call.read(1), &dloss = call.read(2);
  const Buffer &loss = call.write(0), &dx = call.write(1);
  const Argument errors = call.index_errors(p.cols, p.is_signed != 0);
  const ClusterShape shape = cluster_shape(p.rows, p.cols, size_of(x.dtype()));
  const std::string kernel = call.dispatch.kernel + shape.suffix();
  const char* obstacle = shape.size == 0              ? "a row is too wide"
                         : !rows_are_packs({&x, &dx}) ? "rows are no whole, aligned packs of 16 bytes"
                         : !call.queue.has(kernel)    ? "this card has none"
                                                      : nullptr;
  if (obstacle == nullptr) {
    call.launch(kernel, shape.grid, shape.block, p, {x, targets, dloss, loss, dx, errors},
                shape.block_bytes());
    return;
  }
  trace_pass_over(call.dispatch.kernel + "_cluster*", obstacle);
  const auto lse = call.queue.scratch(static_cast<std::size_t>(p.rows) * 2 * sizeof(float));
  call.launch(str("cross_entropy_forward_", x.dtype()), grid_of(p.rows), row_threads(p.cols, x.dtype(), 512),
              p, {x, targets, loss, *lse, errors});
  call.launch(str("cross_entropy_backward_", x.dtype()), grid_of(p.rows * row_blocks(p.cols, x.dtype(), 4)),
              row_threads(p.cols, x.dtype(), 256), p, {x, targets, *lse, dloss, dx, errors});
}

MIXTAPE_GPU_LAUNCHERS("cross_entropy_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("cross_entropy_backward_", backward);
MIXTAPE_GPU_LAUNCHERS("cross_entropy_forward_backward_", both);

}  // namespace
}  // namespace mixtape::gpu
