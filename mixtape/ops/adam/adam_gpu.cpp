#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/adam/adam_gpu_params.h"

namespace mixtape::gpu {
namespace {

// Neighbours of the same dtypes, up to kAdamTensors of them, share a launch.
void adam_step(const Call& call) {
  const std::size_t tensors = call.dispatch.reads.size() - 1;  // the last are the units
  const auto kernel_of = [&](std::size_t t) {
    return str("adam_step_", call.write(3 * t).dtype(), "_", call.read(t).dtype(), "_",
               call.write(3 * t + 1).dtype());
  };
  for (std::size_t begin = 0, end = 0; begin < tensors; begin = end) {
    const std::string kernel = kernel_of(begin);
    AdamGroupParams p{call.params<AdamParams>(), static_cast<std::int64_t>(begin), {}, {}};
    std::int64_t blocks = 0;
    std::vector<Argument> arguments(1 + 4 * kAdamTensors);
    arguments[0] = call.read(tensors);
    for (; end < tensors && end - begin < kAdamTensors && kernel_of(end) == kernel; ++end) {
      const std::size_t t = end - begin;
      p.counts[t] = call.read(end).numel();
      p.first_blocks[t] = blocks;
      blocks += ceil_div(p.counts[t], kAdamLaunchBlock);
      arguments[1 + t] = call.read(end);
      for (std::size_t i = 0; i < 3; ++i) arguments[1 + (i + 1) * kAdamTensors + t] = call.write(3 * end + i);
    }
    call.launch(kernel, grid_of(blocks), kBlock256, p, arguments);
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
