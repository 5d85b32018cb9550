#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/softmax/softmax_params.h"

namespace mixtape::gpu {
namespace {

struct Shape {
  std::string suffix;
  Grid grid, block;
  std::uint32_t shared_bytes = 0;
};

// Rows in the registers of a warp, of a block of up to 512 threads, or of a cluster; else read twice. At most
// `most` packs per thread in a block.
Shape shape_of(const Call& call, bool are_packs, int most) {
  const auto& p = call.params<SoftmaxParams>();
  const std::size_t bytes = size_of(call.dtype(0));
  const std::int64_t packs = ceil_div(p.cols * static_cast<std::int64_t>(bytes), 16);
  if (!are_packs && p.cols <= 1024) return {"_any", grid_of(ceil_div(p.rows, 8)), {32, 8, 1}};
  if (!are_packs) return {"_any", grid_of(p.rows), {512, 1, 1}};
  for (int held = 1; held <= 4; held *= 2) {
    if (packs <= 32 * held) return {str("_held", held), grid_of(ceil_div(p.rows, 8)), {32, 8, 1}};
  }
  for (int held = 4; held <= most; held *= 2) {
    const std::int64_t threads = ceil_div(ceil_div(packs, held), 32) * 32;
    if (threads <= 512)
      return {str("_held", held), grid_of(p.rows), {static_cast<std::uint32_t>(threads), 1, 1}};
  }
  const ClusterShape cluster = cluster_shape(p.rows, p.cols, bytes);
  if (cluster.size > 0 && call.queue.has(call.dispatch.kernel + cluster.suffix()))
    return {cluster.suffix(), cluster.grid, cluster.block, cluster.block_bytes()};
  return {"_packs", grid_of(p.rows), {512, 1, 1}};
}

void forward(const Call& call) {
  const Shape shape =
      shape_of(call, rows_are_packs({&call.read(0), &call.write(0)}), call.dtype(0) == DType::f32 ? 8 : 4);
  call.launch(call.dispatch.kernel + shape.suffix, shape.grid, shape.block, call.params<SoftmaxParams>(),
              {call.read(0), call.write(0)});
}

void backward(const Call& call) {
  const Shape shape = shape_of(call, rows_are_packs({&call.read(0), &call.read(1), &call.write(0)}), 4);
  call.launch(call.dispatch.kernel + shape.suffix, shape.grid, shape.block, call.params<SoftmaxParams>(),
              {call.read(0), call.read(1), call.write(0)}, shape.shared_bytes);
}

MIXTAPE_GPU_LAUNCHERS("softmax_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("softmax_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
