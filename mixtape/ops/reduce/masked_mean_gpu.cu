#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/reduce/reduce_params.h"

namespace mixtape {

// One block: runs of 16 terms per thread, then the runs, then the threads.
MIXTAPE_KERNEL(masked_mean_forward_f32, 1024, ReduceParams p, Global<const float> loss,
               Global<const float> weights, Global<float> mean, Global<float> total) {
  await_earlier();
  MIXTAPE_SHARED(float, scratch, 32);
  constexpr int kRun = 16;
  float sum = 0.0f, weight = 0.0f;
  for (std::int64_t first = thread_x(); first < p.cols; first += kRun * threads_x()) {
    float run = 0.0f, run_weight = 0.0f;
    MIXTAPE_UNROLL
    for (int i = 0; i < kRun; ++i) {
      const std::int64_t row = first + i * threads_x();
      const float w = row < p.cols ? weights[row] : 0.0f;
      if (w == 0.0f) continue;
      run = fma_f32(w, loss[row], run);
      run_weight += w;
    }
    sum += run;
    weight += run_weight;
  }
  sum = block_sum(sum, scratch);
  weight = block_sum(weight, scratch);
  if (thread_x() != 0) return;
  mean[0] = weight == 0.0f ? 0.0f : sum / weight;
  total[0] = weight;
}

MIXTAPE_KERNEL(masked_mean_backward_f32, 256, ReduceParams p, Global<const float> weights,
               Global<const float> total, Global<const float> dy, Global<float> dloss) {
  await_earlier();
  const std::int64_t row = global_thread();
  if (row >= p.cols) return;
  const float all = total[0], w = weights[row];
  const float d = all == 0.0f || w == 0.0f ? 0.0f : w * (dy[0] / all);
  dloss[row] = p.accumulate != 0 ? dloss[row] + d : d;
}

}  // namespace mixtape
