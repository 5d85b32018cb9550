#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/gated_rms_norm/gated_rms_norm_params.h"

namespace mixtape::gpu {
namespace {

struct Shape {
  std::string suffix;
  Grid block;
};

std::uint32_t warps_for(std::int64_t threads) {
  return static_cast<std::uint32_t>(ceil_div(threads, 32) * 32);
}

std::int64_t packs_of(const Call& call, std::int64_t cols) {
  return ceil_div(cols * static_cast<std::int64_t>(size_of(call.dtype(0))), 16);
}

// A row of up to 32 packs takes part of a warp.
Shape narrow(std::int64_t packs) {
  const std::uint32_t threads = std::bit_ceil(static_cast<std::uint32_t>(packs));
  return {"_held1", {threads, 256 / threads, 1}};
}

Shape forward_shape(std::int64_t packs) {
  if (packs <= 32) return narrow(packs);
  if (packs <= 128) return {"_held4", {32, 8, 1}};
  if (packs <= 2048) return {"_held4", {warps_for(ceil_div(packs, 4)), 1, 1}};
  return {"_any", {512, 1, 1}};
}

Shape backward_shape(std::int64_t packs) {
  if (packs <= 32) return narrow(packs);
  if (packs <= 512) return {"_held1", {warps_for(packs), 1, 1}};
  return {"_any", {512, 1, 1}};
}

void forward(const Call& call) {
  const auto& p = call.params<GatedRmsNormParams>();
  const bool is_packed = rows_are_packs({&call.read(0), &call.read(1), &call.read(2), &call.write(0)});
  const Shape shape =
      is_packed ? forward_shape(packs_of(call, p.norm.cols)) : Shape{"_any", row_block(p.norm.cols)};
  call.launch(call.dispatch.kernel + shape.suffix, grid_of(ceil_div(p.norm.rows, shape.block[1])),
              shape.block, p, {call.read(0), call.read(1), call.read(2), call.write(0), call.write(1)});
}

void backward(const Call& call) {
  const auto& p = call.params<GatedRmsNormParams>();
  const Argument dx = call.write_if(p.wanted, p.dx), dz = call.write_if(p.wanted, p.dz),
                 partials = call.write_if(p.wanted, p.dw);
  const bool is_packed = rows_are_packs({&call.read(0), &call.read(1), &call.read(2), &call.read(4)}) &&
                         dx.offset % 16 == 0 && dz.offset % 16 == 0;
  const Shape shape = is_packed ? backward_shape(packs_of(call, p.norm.cols))
                                : Shape{"_any", {std::min(warps_for(ceil_div(p.norm.cols, 4)), 512u), 1, 1}};
  call.launch(call.dispatch.kernel + shape.suffix, grid_of(ceil_div(p.norm.rows, p.norm.row_block)),
              shape.block, p,
              {call.read(0), call.read(1), call.read(2), call.read(3), call.read(4), dx, dz, partials});
}

MIXTAPE_GPU_LAUNCHERS("gated_rms_norm_forward_", forward);
MIXTAPE_GPU_LAUNCHER("gated_rms_norm_forward_bf16_w_f32", forward);
MIXTAPE_GPU_LAUNCHER("gated_rms_norm_forward_f16_w_f32", forward);
MIXTAPE_GPU_LAUNCHERS("gated_rms_norm_backward_", backward);
MIXTAPE_GPU_LAUNCHER("gated_rms_norm_backward_bf16_w_f32", backward);
MIXTAPE_GPU_LAUNCHER("gated_rms_norm_backward_f16_w_f32", backward);

}  // namespace
}  // namespace mixtape::gpu
