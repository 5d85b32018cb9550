#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/rope/rope_gpu_params.h"

namespace mixtape::gpu {
namespace {

// The cosines and sines of all positions, then the rotation, which is memory's work.
void rotate(const Call& call, float sign) {
  const auto& p = call.params<RopeParams>();
  const Buffer &x = call.read(0), &y = call.write(0);
  const std::int64_t positions = p.position_batch * p.length, angles = positions * p.pairs;
  const auto table =
      call.queue.scratch(static_cast<std::size_t>(2 * ceil_div(angles, 4) * 4) * sizeof(float));
  const std::size_t half = table->bytes() / 2;
  const Argument cos = Argument(*table).part(0, half), sin = Argument(*table).part(half, half);
  call.launch("rope_angles", grid_for(angles), kBlock256,
              RopeAnglesParams{positions, p.pairs, p.factor, sign}, {call.read(1), call.read(2), cos, sin});
  const auto pack = static_cast<std::int64_t>(16 / size_of(x.dtype()));
  const bool is_packed =
      p.pairs % pack == 0 && p.head_dim % pack == 0 && x.byte_offset() % 16 == 0 && y.byte_offset() % 16 == 0;
  const std::int64_t n = is_packed ? pack : 1;
  const std::int64_t units = p.pairs / n + ceil_div(p.head_dim - 2 * p.pairs, 2 * n);
  call.launch(str("rope_", x.dtype(), is_packed ? "_packs" : "_ones"),
              grid_for(p.batch * p.length * ceil_div(p.heads, kRopeHeads) * units), kBlock256, p,
              {x, cos, sin, y});
}

MIXTAPE_GPU_LAUNCHERS("rope_forward_", [](const Call& call) { rotate(call, 1.0f); });
MIXTAPE_GPU_LAUNCHERS("rope_backward_", [](const Call& call) { rotate(call, -1.0f); });

}  // namespace
}  // namespace mixtape::gpu
