#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/reduce/reduce_params.h"

namespace mixtape::gpu {
namespace {

struct Units {
  std::string kernel;
  std::int64_t size;  // elements that are moved at once
};

Units units(const Call& call, const Buffer& wide, std::int64_t cols) {
  const auto pack = static_cast<std::int64_t>(16 / size_of(wide.dtype()));
  if (wide.byte_offset() % 16 != 0 || cols % pack != 0) return {call.dispatch.kernel + "_ones", 1};
  return {call.dispatch.kernel + "_packs", pack};
}

void row_sum_forward(const Call& call) {
  const auto& p = call.params<ReduceParams>();
  const Units u = units(call, call.read(0), p.cols);
  const Grid block = row_block(ceil_div(p.cols, u.size));
  call.launch(u.kernel, grid_of(ceil_div(p.rows, block[1])), block, p, {call.read(0), call.write(0)});
}

// Of rows, and of one value for everything.
void spread(const Call& call) {
  const auto& p = call.params<ReduceParams>();
  const Units u = units(call, call.write(0), p.cols);
  call.launch(u.kernel, grid_for(p.rows * p.cols, 4 * u.size), kBlock256, p, {call.read(0), call.write(0)});
}

void sum_forward(const Call& call) {
  const auto& p = call.params<ReduceParams>();
  const std::int64_t blocks = ceil_div(p.cols, kSumBlock);
  const auto sums = call.queue.scratch(static_cast<std::size_t>(blocks) * sizeof(float));
  call.launch(str("sum_blocks_", call.dtype(0)), grid_of(blocks), kBlock256, p, {call.read(0), *sums});
  call.launch("sum_of_blocks", {1, 1, 1}, {1024, 1, 1}, ReduceParams{1, blocks, p.divisor, 0},
              {*sums, call.write(0)});
}

MIXTAPE_GPU_LAUNCHERS("row_sum_forward_", row_sum_forward);
MIXTAPE_GPU_LAUNCHERS("row_sum_backward_", spread);
MIXTAPE_GPU_LAUNCHERS("sum_forward_", sum_forward);
MIXTAPE_GPU_LAUNCHERS("sum_backward_", spread);

}  // namespace
}  // namespace mixtape::gpu
