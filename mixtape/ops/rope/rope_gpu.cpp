#include "mixtape/ops/rope/rope_gpu.h"

namespace mixtape::gpu {
namespace {

// Memory's work, once the angles are there.
void rotate(const Call& call, float sign) {
  const auto& p = call.params<RopeParams>();
  const Buffer &x = call.read(0), &y = call.write(0);
  const RopeAngles angles = rope_angles(call, p, call.read(1), call.read(2), sign);
  const bool is_packed =
      rope_is_packed(p, x.dtype()) && x.byte_offset() % 16 == 0 && y.byte_offset() % 16 == 0;
  const std::int64_t units = rope_units(p, is_packed ? pack_of(x.dtype()) : 1);
  call.launch(str("rope_", x.dtype(), is_packed ? "_packs" : "_ones"),
              grid_for(p.batch * p.length * ceil_div(p.heads, kRopeHeads) * units), kBlock256, p,
              {x, angles.cos, angles.sin, y});
}

MIXTAPE_GPU_LAUNCHERS("rope_forward_", [](const Call& call) { rotate(call, 1.0f); });
MIXTAPE_GPU_LAUNCHERS("rope_backward_", [](const Call& call) { rotate(call, -1.0f); });

}  // namespace

RopeAngles rope_angles(const Call& call, const RopeParams& p, const Argument& positions,
                       const Argument& inv_freq, float sign) {
  const std::int64_t tokens = p.position_batch * p.length, count = tokens * p.pairs;
  auto table = call.queue.scratch(static_cast<std::size_t>(2 * ceil_div(count, 4) * 4) * sizeof(float));
  const std::size_t half = table->bytes() / 2;
  const Argument cos = Argument(*table).part(0, half), sin = Argument(*table).part(half, half);
  call.launch("rope_angles", grid_for(count), kBlock256, RopeAnglesParams{tokens, p.pairs, p.factor, sign},
              {positions, inv_freq, cos, sin});
  return {std::move(table), cos, sin};
}

}  // namespace mixtape::gpu
