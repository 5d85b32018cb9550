#include <bit>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/rows.h"
#include "mixtape/backend/gpu/stream_params.h"
#include "mixtape/ops/elementwise/elementwise_gpu_params.h"
#include "mixtape/ops/elementwise/elementwise_params.h"

namespace mixtape::gpu {
namespace {

void launch(const Call& call, std::int64_t count) {
  const int inputs = static_cast<int>(call.dispatch.reads.size());
  const auto bytes = static_cast<std::int64_t>(size_of(call.dtype(0)));
  call.launch_same(grid_of(ceil_div(count, stream_block(inputs, bytes))), kBlock256);
}

void unary(const Call& call) { launch(call, call.params<UnaryParams>().count); }
void binary(const Call& call) { launch(call, call.params<BinaryParams>().count); }
void binary_backward(const Call& call) { launch(call, call.params<BinaryBackwardParams>().cols); }

// dx[c] = sum_r f(dy[r,c], self[c], other[r,c]): blocks of rows, then the blocks.
void binary_backward_sum(const Call& call) {
  const auto& p = call.params<BinaryBackwardParams>();
  const auto pack = static_cast<std::int64_t>(16 / size_of(call.dtype(0)));
  bool is_packed = p.cols % pack == 0;
  for (const Buffer& b : call.dispatch.reads) is_packed = is_packed && b.byte_offset() % 16 == 0;
  const std::int64_t units = is_packed ? p.cols / pack : p.cols;
  const std::uint32_t x = std::bit_ceil(static_cast<std::uint32_t>(std::min<std::int64_t>(units, 32)));
  const std::int64_t stripes = ceil_div(units, x), side_by_side = 256 / x;
  const std::int64_t shares = std::max<std::int64_t>(1024 / stripes, 1);
  const std::int64_t row_block = std::max({ceil_div(p.rows, shares), 2 * side_by_side, std::int64_t{64}});
  const std::int64_t blocks = ceil_div(p.rows, row_block);
  const auto partials = call.queue.scratch(static_cast<std::size_t>(blocks * p.cols) * sizeof(float));
  Grid grid = grid_of(stripes);
  grid[1] = static_cast<std::uint32_t>(blocks);
  call.launch(call.dispatch.kernel + (is_packed ? "_packs" : "_ones"), grid,
              {x, static_cast<std::uint32_t>(side_by_side), 1}, BackwardSumParams{p.rows, p.cols, row_block},
              {call.read(0), call.read(1), call.read(2), *partials});
  launch_partials(call, str("binary_backward_add_", call.dtype(0)), {blocks, p.cols, p.accumulate}, *partials,
                  call.write(0));
}

#define UNARY(NAME)                                \
  MIXTAPE_GPU_LAUNCHERS(#NAME "_forward_", unary); \
  MIXTAPE_GPU_LAUNCHERS(#NAME "_backward_", unary);
MIXTAPE_UNARY_OPS(UNARY)
#define BINARY(NAME) MIXTAPE_GPU_LAUNCHERS(#NAME "_forward_", binary);
MIXTAPE_BINARY_OPS(BINARY)
#define BACKWARD(NAME) MIXTAPE_GPU_LAUNCHERS(#NAME "_", binary_backward);
MIXTAPE_BINARY_BACKWARDS(BACKWARD)
#define BACKWARD_SUM(NAME) MIXTAPE_GPU_LAUNCHERS(#NAME "_sum_", binary_backward_sum);
MIXTAPE_BINARY_BACKWARD_SUMS(BACKWARD_SUM)

}  // namespace
}  // namespace mixtape::gpu
