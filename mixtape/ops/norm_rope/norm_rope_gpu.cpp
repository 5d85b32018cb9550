#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/norm_rope/norm_rope_gpu_params.h"
#include "mixtape/ops/rope/rope_gpu.h"

namespace mixtape::gpu {
namespace {

// "_held": a head's dimensions in the registers of part of a warp, one pack or two a thread; "_any": a head goes through
// a warp twice.
struct Shape {
  std::string suffix;
  Grid block;
};

Shape shape_of(const RopeParams& p, DType dtype, bool are_aligned) {
  const std::int64_t units = are_aligned && rope_is_packed(p, dtype) ? rope_units(p, pack_of(dtype)) : 33;
  if (units > 32) return {"_any", {32, 1, 1}};
  const std::uint32_t threads = std::bit_ceil(static_cast<std::uint32_t>(units));
  return {"_held", {threads, 256 / threads, 1}};
}

bool is_aligned(const Buffer& b) { return b.byte_offset() % 16 == 0; }

void forward(const Call& call) {
  const auto& p = call.params<NormRopeParams>();
  const Buffer &x = call.read(0), &w = call.read(1), &y = call.write(0);
  const RopeAngles angles = rope_angles(call, p.rope, call.read(2), call.read(3), 1.0f);
  const Shape shape = shape_of(p.rope, x.dtype(), is_aligned(x) && is_aligned(w) && is_aligned(y));
  const std::int64_t heads = p.norm.rows * p.rope.heads;
  call.launch(call.dispatch.kernel + shape.suffix, grid_of(ceil_div(heads, shape.block[1])), shape.block, p,
              {x, w, angles.cos, angles.sin, y, call.write(1)});
}

void backward(const Call& call) {
  const auto& p = call.params<NormRopeParams>();
  const Buffer &x = call.read(0), &w = call.read(1), &dy = call.read(5);
  const Argument dx = call.write_if(p.wanted, p.dx), partials = call.write_if(p.wanted, p.dw);
  const RopeAngles angles = rope_angles(call, p.rope, call.read(2), call.read(3), -1.0f);
  const bool are_aligned = is_aligned(x) && is_aligned(w) && is_aligned(dy) && dx.offset % 16 == 0;
  const Shape shape = shape_of(p.rope, x.dtype(), are_aligned);
  call.launch(call.dispatch.kernel + shape.suffix, grid_of(ceil_div(p.norm.rows, p.norm.row_block)),
              shape.block, p, {x, w, angles.cos, angles.sin, call.read(4), dy, dx, partials});
}

MIXTAPE_GPU_LAUNCHERS("norm_rope_forward_", forward);
MIXTAPE_GPU_LAUNCHER("norm_rope_forward_bf16_w_f32", forward);
MIXTAPE_GPU_LAUNCHER("norm_rope_forward_f16_w_f32", forward);
MIXTAPE_GPU_LAUNCHERS("norm_rope_backward_", backward);
MIXTAPE_GPU_LAUNCHER("norm_rope_backward_bf16_w_f32", backward);
MIXTAPE_GPU_LAUNCHER("norm_rope_backward_f16_w_f32", backward);

}  // namespace
}  // namespace mixtape::gpu
