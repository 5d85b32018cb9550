#include <cmath>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/memory_params.h"

namespace mixtape::gpu {
namespace {

void copy(const Call& call) {
  if (call.write(0).bytes() > 0) call.queue.copy(call.read(0), call.write(0));
}

void fill(const Call& call) {
  const Buffer& y = call.write(0);
  const auto value = call.params<float>();
  if (y.numel() == 0) return;
  if (!std::signbit(value) && value == 0.0f) return call.queue.zero(y);
  call.launch(str("fill_", y.dtype()), grid_for(y.numel(), 8), kBlock256, FillParams{y.numel(), value}, {y});
}

void accumulate(const Call& call) {
  const Buffer& y = call.write(0);
  if (y.numel() == 0) return;
  const auto pack = static_cast<std::int64_t>(16 / size_of(y.dtype()));
  call.launch(call.dispatch.kernel + "_kernel", grid_for(y.numel(), pack), kBlock256,
              AccumulateParams{y.numel()}, {call.read(0), y});
}

MIXTAPE_GPU_LAUNCHER("copy", copy);
MIXTAPE_GPU_LAUNCHER("fill", fill);
MIXTAPE_GPU_LAUNCHERS("accumulate_", accumulate);

}  // namespace
}  // namespace mixtape::gpu
