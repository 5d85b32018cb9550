#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/take_along_axis/take_along_axis_params.h"

namespace mixtape::gpu {
namespace {

constexpr std::int64_t kWarpPicks = 32, kBlockPicks = 1024;
constexpr std::size_t kShortRow = 4096;  // bytes that a warp zeroes on its way
constexpr std::int64_t kWarpSums = 512;  // that a warp puts together

void forward(const Call& call) {
  const auto& p = call.params<TakeAlongAxisParams>();
  call.launch(call.dispatch.kernel, grid_for(p.rows * p.k, 4), kBlock256, p,
              {call.read(0), call.read(1), call.write(0), call.index_errors(p.cols, p.index_is_signed != 0)});
}

// More picks per row than one block compares: f32 sums per column, chunk by chunk.
void backward_by_chunks(const Call& call, const TakeAlongAxisParams& p, const Argument& errors) {
  const Buffer& dx = call.write(0);
  const auto sums = call.queue.scratch(static_cast<std::size_t>(dx.numel()) * sizeof(float));
  call.queue.zero(*sums);
  call.launch(str("take_along_axis_sums_", dx.dtype()), grid_of(p.rows), {1024, 1, 1}, p,
              {call.read(0), call.read(1), *sums, errors});
  call.launch(str("take_along_axis_add_", dx.dtype()), grid_for(dx.numel(), 4), kBlock256, p, {*sums, dx});
}

void backward(const Call& call) {
  auto p = call.params<TakeAlongAxisParams>();
  const Buffer& dx = call.write(0);
  const Argument errors = call.index_errors(p.cols, p.index_is_signed != 0);
  if (p.k > kBlockPicks) return backward_by_chunks(call, p, errors);
  const std::size_t row_bytes = static_cast<std::size_t>(p.cols) * size_of(dx.dtype());
  if (p.accumulate == 0 && p.k <= kWarpPicks && kWarpPicks / p.k * p.cols <= kWarpSums &&
      rows_are_packs({&dx})) {
    const std::int64_t warps = ceil_div(p.rows, kWarpPicks / p.k);
    return call.launch(str("take_along_axis_backward_packs_", dx.dtype()), grid_of(ceil_div(warps, 8)),
                       {32, 8, 1}, p, {call.read(0), call.read(1), dx, errors});
  }
  if (p.accumulate == 0 && (p.k > kWarpPicks || row_bytes > kShortRow)) {
    call.queue.zero(dx);
    p.accumulate = 1;
  }
  const std::vector<Argument> arguments = {call.read(0), call.read(1), dx, errors};
  if (p.k <= kWarpPicks) {
    call.launch(call.dispatch.kernel, grid_of(ceil_div(p.rows, 8)), {32, 8, 1}, p, arguments);
  } else {
    const auto threads = static_cast<std::uint32_t>(ceil_div(p.k, 32) * 32);
    call.launch(str("take_along_axis_scatter_", dx.dtype()), grid_of(p.rows), {threads, 1, 1}, p, arguments);
  }
}

MIXTAPE_GPU_LAUNCHERS("take_along_axis_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("take_along_axis_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
