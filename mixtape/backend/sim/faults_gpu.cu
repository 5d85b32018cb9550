// Kernels with one fault each, for the tests of the simulator.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/backend/sim/faults_params.h"

namespace mixtape {

MIXTAPE_KERNEL(test_reverse, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  MIXTAPE_SHARED(float, tile, 256);
  tile[thread_x()] = x[thread_x()];
  barrier();
  y[thread_x()] = tile[p.count - 1 - thread_x()];
}
MIXTAPE_KERNEL(test_reads_early, 256, SizeParams p, Global<const float> x, Global<float> y) {
  const float v = x[thread_x()];
  await_earlier();
  if (thread_x() < p.count) y[thread_x()] = v;
}
MIXTAPE_KERNEL(test_never_awaits, 256, SizeParams p, Global<const float> x, Global<float> y) {
  if (thread_x() == p.count - 1) return;
  await_earlier();
  y[thread_x()] = x[thread_x()];
}
MIXTAPE_KERNEL(test_missing_barrier, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  MIXTAPE_SHARED(float, tile, 256);
  tile[thread_x()] = x[thread_x()];
  if (warp() > 0) lane_barrier();
  y[thread_x()] = tile[p.count - 1 - thread_x()];
}
MIXTAPE_KERNEL(test_missing_barrier_before_reuse, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  MIXTAPE_SHARED(float, tile, 256);
  tile[thread_x()] = x[thread_x()];
  barrier();
  y[thread_x()] = tile[p.count - 1 - thread_x()];
  tile[thread_x()] = 0.0f;
}
MIXTAPE_KERNEL(test_read_then_write, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  MIXTAPE_SHARED(float, tile, 256);
  tile[thread_x()] = x[thread_x()];
  barrier();
  y[thread_x()] = tile[0];
  if (thread_x() == p.count - 1) tile[0] = 0.0f;
}
MIXTAPE_KERNEL(test_off_by_one, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  if (thread_x() <= p.count) y[thread_x()] = x[thread_x()];
}
MIXTAPE_KERNEL(test_unwritten_output, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  if (thread_x() < p.count - 1) y[thread_x()] = x[thread_x()];
}
MIXTAPE_KERNEL(test_unwritten_shared, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  MIXTAPE_SHARED(float, tile, 256);
  if (thread_x() < p.count - 1) tile[thread_x()] = x[thread_x()];
  barrier();
  y[thread_x()] = tile[thread_x()];
}
MIXTAPE_KERNEL(test_divergent_barrier, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  if (thread_x() >= p.count - 1) return;
  barrier();
  y[thread_x()] = x[thread_x()];
}
MIXTAPE_KERNEL(test_two_barriers, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  if (thread_x() < p.count / 2) {
    barrier();
  } else {
    barrier();
  }
  y[thread_x()] = x[thread_x()];
}
MIXTAPE_KERNEL(test_divergent_lanes, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  float v = x[thread_x()];
  if (thread_x() < p.count - 1) v = lane_sum(v);
  y[thread_x()] = v;
}
MIXTAPE_KERNEL(test_blocks_race, 256, SizeParams p, Global<const float> x, Global<float> y) {
  await_earlier();
  if (thread_x() < p.count) y[thread_x()] = x[thread_x()] + static_cast<float>(block_x());
}
MIXTAPE_KERNEL(test_lane_reduction, 256, SizeParams, Global<const float> x, Global<float> y) {
  await_earlier();
  MIXTAPE_SHARED(float, scratch, 32);
  y[thread_x()] = block_sum(x[thread_x()], scratch) + block_max(x[thread_x()], scratch);
}
MIXTAPE_KERNEL(test_misaligned, 256, SizeParams, Global<const float> x, Global<float> y) {
  await_earlier();
  store_pack(y + thread_x(), load_pack<4>(x + (thread_x() + 1)));
}

}  // namespace mixtape
