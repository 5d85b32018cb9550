#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/adam/adam_gpu_params.h"

namespace mixtape::gpu {
namespace {

// A launch per tensor.
void adam_step(const Call& call) {
  AdamTensorParams p{call.params<AdamParams>(), 0, 0};
  const std::size_t tensors = call.dispatch.reads.size() - 1;  // the last are the units
  for (std::size_t t = 0; t < tensors; ++t) {
    const Buffer &g = call.read(t), &value = call.write(3 * t);
    p.count = g.numel();
    p.tensor = static_cast<std::int64_t>(t);
    call.launch(str("adam_step_", value.dtype(), "_", g.dtype()), grid_for(p.count, 4), kBlock256, p,
                {call.read(tensors), g, value, call.write(3 * t + 1), call.write(3 * t + 2)});
  }
}

void sum_of_squares(const Call& call) {
  std::int64_t blocks = 0;
  for (const Buffer& x : call.dispatch.reads) blocks += ceil_div(x.numel(), kAdamBlock);
  if (blocks == 0) return call.queue.zero(call.write(0));
  const auto sums = call.queue.scratch(static_cast<std::size_t>(blocks) * sizeof(float));
  std::size_t at = 0;
  for (const Buffer& x : call.dispatch.reads) {
    if (x.numel() == 0) continue;
    const std::int64_t own = ceil_div(x.numel(), kAdamBlock);
    const std::size_t bytes = static_cast<std::size_t>(own) * sizeof(float);
    call.launch(str("squares_of_blocks_", x.dtype()), grid_of(own), kBlock256, SquaresParams{x.numel()},
                {x, Argument(*sums).part(at, bytes)});
    at += bytes;
  }
  call.launch("squares_of_all", {1, 1, 1}, {1024, 1, 1}, SquaresParams{blocks}, {*sums, call.write(0)});
}

MIXTAPE_GPU_LAUNCHER("adam_step", adam_step);
MIXTAPE_GPU_LAUNCHER("sum_of_squares", sum_of_squares);

}  // namespace
}  // namespace mixtape::gpu
