#include <bit>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/fit_blocks/fit_blocks_gpu_params.h"
#include "mixtape/ops/quantize/affine.h"

namespace mixtape::gpu {
namespace {

// What the kernel found, see report_weight: elements of importance come before those of w.
void explain_fit(ErrorSlot& errors, std::uint64_t found, const FitBlocksParams& p) {
  const float value = std::bit_cast<float>(static_cast<std::uint32_t>(found << 8));
  const std::int64_t importances = p.has_importance != 0 ? p.experts * p.cols : 0;
  const std::int64_t position = static_cast<std::int64_t>(found >> 24) - importances;
  try {
    if (position < 0) refuse_block_importance(position + importances, value);
    if (value != 0.0f) refuse_weight("fit_blocks", position / p.cols, position % p.cols, value);
    refuse_block_overflow(position / p.cols, position % p.cols);
  } catch (...) {
    errors.report_exception(std::current_exception());
  }
}

void fit_blocks(const Call& call) {
  const auto& p = call.params<FitBlocksParams>();
  const Argument errors = call.queue.error_word(
      call.errors, [p](ErrorSlot& slot, std::uint64_t found) { explain_fit(slot, found, p); });
  const std::int64_t size = std::int64_t{p.shape.groups} * p.shape.group_size;
  const std::int64_t threads = kFitBlockWeights / size, row_blocks = ceil_div(p.rows, threads);
  std::size_t next = 1;
  const auto output = [&](std::uint32_t is_there) {
    return is_there != 0 ? Argument(call.write(next++)) : Argument();
  };
  const Argument scales = output(1), biases = output(p.shape.has_biases),
                 sub_scales = output(p.shape.has_sub_scales), sub_biases = output(p.shape.has_sub_biases);
  call.launch(
      call.dispatch.kernel, grid_of(p.experts * row_blocks * (p.cols / size)),
      {static_cast<std::uint32_t>(threads), 1, 1},
      FitBlocksGpuParams{p.experts, p.rows, p.cols, row_blocks, p.shape, p.has_importance, p.searches},
      {call.read(0), p.has_importance != 0 ? Argument(call.read(1)) : Argument(), call.write(0), scales,
       biases, sub_scales, sub_biases, errors});
}

MIXTAPE_GPU_LAUNCHER("fit_blocks_forward", fit_blocks);

}  // namespace
}  // namespace mixtape::gpu
