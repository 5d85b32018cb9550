#include <bit>

#include "mixtape/backend/gpu/partials_params.h"
#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"

namespace mixtape::gpu {
namespace {

// Threads for a row, rows beside each other, and which kernel.
struct Shape {
  Grid block;
  std::string kernel;
};

// Blocks that go from row to row: about four on each multiprocessor of a large card.
constexpr std::int64_t kRowBlocks = 512;

std::uint32_t warps_for(std::int64_t threads) {
  return static_cast<std::uint32_t>(ceil_div(threads, 32) * 32);
}

// A row of up to 32 packs takes part of a warp.
Shape narrow(std::int64_t packs) {
  const std::uint32_t threads = std::bit_ceil(static_cast<std::uint32_t>(packs));
  return {{threads, 256 / threads, 1}, "_held1"};
}

Shape forward_shape(std::int64_t packs) {
  if (packs <= 32) return narrow(packs);
  if (packs <= 128) return {{32, 8, 1}, packs <= 64 ? "_held2" : "_held4"};
  if (packs <= 512) return {{warps_for(ceil_div(packs, 2)), 1, 1}, "_rows2"};
  if (packs <= 1024) return {{warps_for(ceil_div(packs, 4)), 1, 1}, "_held4"};
  if (packs <= 4096) return {{warps_for(ceil_div(packs, 8)), 1, 1}, "_held8"};
  return {{512, 1, 1}, "_any"};
}

// Wider rows are not held: the shares of dw need registers too.
Shape backward_shape(std::int64_t packs) {
  if (packs <= 32) return narrow(packs);
  if (packs <= 1024) return {{warps_for(packs), 1, 1}, "_ahead"};
  if (packs <= 2048) return {{warps_for(ceil_div(packs, 4)), 1, 1}, "_held4"};
  return {{512, 1, 1}, "_any"};
}

Shape any_shape(std::int64_t cols, bool is_forward) {
  if (cols <= 512 && is_forward) return {{32, 8, 1}, "_any"};
  return {{std::min<std::uint32_t>(warps_for(ceil_div(cols, 4)), 512), 1, 1}, "_any"};
}

std::int64_t packs_of(const Call& call, std::int64_t cols) {
  return ceil_div(cols * static_cast<std::int64_t>(size_of(call.dtype(0))), 16);
}

void forward(const Call& call) {
  const auto& p = call.params<RmsNormParams>();
  const bool is_packed = rows_are_packs({&call.read(0), &call.read(1), &call.write(0)});
  const Shape shape = is_packed ? forward_shape(packs_of(call, p.cols)) : any_shape(p.cols, true);
  const std::int64_t blocks = ceil_div(p.rows, shape.block[1]);
  const bool goes_on = shape.kernel.starts_with("_rows");  // from row to row
  call.launch(call.dispatch.kernel + shape.kernel, grid_of(goes_on ? std::min(blocks, kRowBlocks) : blocks),
              shape.block, p, {call.read(0), call.read(1), call.write(0), call.write(1)});
}

void backward(const Call& call) {
  const auto& p = call.params<RmsNormParams>();
  const Argument dx = p.wants_dx != 0 ? Argument(call.write(0)) : Argument();
  const Argument partials = p.wants_dw != 0 ? Argument(call.write(p.wants_dx)) : Argument();
  const bool is_packed = rows_are_packs({&call.read(0), &call.read(1), &call.read(3)}) && dx.offset % 16 == 0;
  const Shape shape = is_packed ? backward_shape(packs_of(call, p.cols)) : any_shape(p.cols, false);
  call.launch(call.dispatch.kernel + shape.kernel, grid_of(ceil_div(p.rows, p.row_block)), shape.block, p,
              {call.read(0), call.read(1), call.read(2), call.read(3), dx, partials});
}

void backward_weight(const Call& call) {
  const auto& p = call.params<RmsNormParams>();
  const PartialsParams params{ceil_div(p.rows, p.row_block), p.cols, p.accumulate_dw};
  call.launch(call.dispatch.kernel, grid_of(ceil_div(p.cols, kPartialCols)), {kPartialsX, 32, 1}, params,
              {call.read(0), call.write(0)});
}

MIXTAPE_GPU_LAUNCHERS("rms_norm_forward_", forward);
MIXTAPE_GPU_LAUNCHER("rms_norm_forward_bf16_w_f32", forward);
MIXTAPE_GPU_LAUNCHER("rms_norm_forward_f16_w_f32", forward);
MIXTAPE_GPU_LAUNCHERS("rms_norm_backward_", backward);
MIXTAPE_GPU_LAUNCHER("rms_norm_backward_bf16_w_f32", backward);
MIXTAPE_GPU_LAUNCHER("rms_norm_backward_f16_w_f32", backward);
MIXTAPE_GPU_LAUNCHERS("rms_norm_backward_weight_", backward_weight);

}  // namespace
}  // namespace mixtape::gpu
