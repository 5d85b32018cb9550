#include <bit>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/fit_affine/fit_affine_gpu_params.h"
#include "mixtape/ops/fit_affine/fit_affine_params.h"

namespace mixtape::gpu {
namespace {

// What the kernel found, see report_weight: elements of importance come before those of w.
void explain_fit(ErrorSlot& errors, std::uint64_t found, const FitAffineParams& p, DType scales) {
  const float value = std::bit_cast<float>(static_cast<std::uint32_t>(found << 8));
  const std::int64_t importances = p.has_importance != 0 ? p.experts * p.cols : 0;
  const std::int64_t position = static_cast<std::int64_t>(found >> 24) - importances;
  try {
    if (position < 0) refuse_importance(position + importances, value);
    if (value != 0.0f) refuse_weight("fit_affine", position / p.cols, position % p.cols, value);
    refuse_overflow(position / p.cols, position % p.cols, scales);
  } catch (...) {
    errors.report_exception(std::current_exception());
  }
}

void fit_affine(const Call& call) {
  const auto& p = call.params<FitAffineParams>();
  const DType scales = call.write(1).dtype();
  const Argument errors = call.queue.error_word(
      call.errors,
      [p, scales](ErrorSlot& slot, std::uint64_t found) { explain_fit(slot, found, p, scales); });
  const std::int64_t threads = kFitWeights / p.affine.group_size, row_blocks = ceil_div(p.rows, threads);
  const FitAffineGpuParams params{p.experts,           p.rows,           p.cols, row_blocks, p.affine.bits,
                                  p.affine.group_size, p.has_importance, p.drop, p.nudge};
  call.launch(str("fit_affine_", scales), grid_of(p.experts * row_blocks * p.affine.groups(p.cols)),
              {static_cast<std::uint32_t>(threads), 1, 1}, params,
              {call.read(0), p.has_importance != 0 ? Argument(call.read(1)) : Argument(), call.write(0),
               call.write(1), call.write(2), errors});
}

MIXTAPE_GPU_LAUNCHERS("fit_affine_forward_", fit_affine);

}  // namespace
}  // namespace mixtape::gpu
