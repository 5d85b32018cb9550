#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/softmax/softmax_params.h"

namespace mixtape::gpu {
namespace {

std::string variant(int held) { return held == 0 ? "_any" : str("_held", held); }

void forward(const Call& call) {
  const auto& p = call.params<SoftmaxParams>();
  RowShape shape = row_shape(p.rows, p.cols, size_of(call.dtype(0)), 8);
  if (!rows_are_packs({&call.read(0), &call.write(0)})) shape.held = 0;
  call.launch(call.dispatch.kernel + variant(shape.held), shape.grid, shape.block, p,
              {call.read(0), call.write(0)});
}

void backward(const Call& call) {
  const auto& p = call.params<SoftmaxParams>();
  RowShape shape = row_shape(p.rows, p.cols, size_of(call.dtype(0)), 4);
  if (!rows_are_packs({&call.read(0), &call.read(1), &call.write(0)})) shape.held = 0;
  call.launch(call.dispatch.kernel + variant(shape.held), shape.grid, shape.block, p,
              {call.read(0), call.read(1), call.write(0)});
}

MIXTAPE_GPU_LAUNCHERS("softmax_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("softmax_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
