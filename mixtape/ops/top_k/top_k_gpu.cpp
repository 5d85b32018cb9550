#include "mixtape/ops/top_k/top_k_gpu.h"

#include <bit>

#include "mixtape/ops/top_k/top_k_gpu_params.h"
#include "mixtape/ops/top_k/top_k_params.h"

namespace mixtape::gpu {
namespace {

constexpr std::size_t kShortRow = 4096;  // bytes that a warp zeroes on its way

void forward(const Call& call) {
  const auto& p = call.params<TopKParams>();
  const Buffer& x = call.read(0);
  const int held = held_columns(p.cols, p.k);
  if (held == 0) return select_rows(call, x, p.k, call.write(0), call.write(1));
  call.launch(str(call.dispatch.kernel, "_held", held), grid_of(ceil_div(p.rows, 8)), {32, 8, 1}, p,
              {x, call.write(0), call.write(1)});
}

void backward(const Call& call) {
  auto p = call.params<TopKParams>();
  const Buffer& dx = call.write(0);
  if (p.accumulate == 0 && static_cast<std::size_t>(p.cols) * size_of(dx.dtype()) > kShortRow) {
    call.queue.zero(dx);
    p.accumulate = 1;
  }
  call.launch(call.dispatch.kernel, grid_of(ceil_div(p.rows, 8)), {32, 8, 1}, p,
              {call.read(0), call.read(1), dx, call.index_errors(p.cols, false)});
}

MIXTAPE_GPU_LAUNCHERS("top_k_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("top_k_backward_", backward);

}  // namespace

int held_columns(std::int64_t cols, std::int64_t k) {
  if (k > 32 || cols > 512) return 0;
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(ceil_div(cols, 32))));
}

void select_rows(const Call& call, const Buffer& x, std::int64_t k, const Argument& values,
                 const Argument& indices) {
  TopKSelectParams p{
      x.shape().rows(), x.shape().cols(), k, kSharedEntries, 0, values.memory != nullptr ? 1u : 0u};
  std::shared_ptr<Memory> entries;
  if (2 * k > kSharedEntries) {
    p.capacity = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * k)));
    entries = call.queue.scratch(static_cast<std::size_t>(p.rows * p.capacity) * sizeof(std::uint64_t));
  }
  p.goal = std::max<std::int64_t>(2 * k, 1024);
  const std::uint32_t threads = p.cols <= 2048 ? 256 : p.rows < 256 ? 1024 : 512;
  const Grid grid = grid_of(p.rows), block = {threads, 1, 1};
  if (entries) {
    call.launch(str("top_k_select_long_", x.dtype()), grid, block, p, {x, values, indices, *entries});
  } else {
    call.launch(str("top_k_select_", x.dtype()), grid, block, p, {x, values, indices});
  }
}

}  // namespace mixtape::gpu
