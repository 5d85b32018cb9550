#include "mixtape/ops/latent_codes/latent_codes_gpu_params.h"
#include "mixtape/ops/latent_codes/latent_codes_params.h"
#include "mixtape/ops/quantize/quantize_gpu.h"

namespace mixtape::gpu {
namespace {

float largest_code(const LatentCodesParams& p) { return static_cast<float>(p.affine.max_code()); }

void forward(const Call& call) {
  const auto& p = call.params<LatentCodesParams>();
  const LatentForwardParams params{{p.count, group_shift(p.affine)}, largest_code(p)};
  call.launch(call.dispatch.kernel, grid_for(p.count, kCodesAtOnce), kBlock256, params,
              {call.read(0), call.read(1), call.read(2), call.write(0)});
}

void backward(const Call& call) {
  const auto& p = call.params<LatentCodesParams>();
  // Behind the bit of du those of ScaleBits follow.
  const ReduceCodesParams groups{p.count, group_shift(p.affine), {p.wanted >> 1, p.accumulate >> 1}};
  const LatentBackwardParams params{groups, largest_code(p), p.wanted & kLatentDu, p.accumulate & kLatentDu};
  call.launch(call.dispatch.kernel, grid_for(p.count, kCodesAtOnce), kBlock256, params,
              {call.read(0), call.read(1), call.read(2), call.write_if(p.wanted, kLatentDu),
               call.write_if(p.wanted, kLatentDscales), call.write_if(p.wanted, kLatentDbiases)});
}

void explain(ErrorSlot& errors, std::uint64_t position, std::int64_t cols) {
  try {
    refuse_nan(static_cast<std::int64_t>(position), cols);
  } catch (...) {
    errors.report_exception(std::current_exception());
  }
}

void pack(const Call& call) {
  const auto& p = call.params<LatentCodesParams>();
  const Argument errors = call.queue.error_word(
      call.errors,
      [cols = p.cols](ErrorSlot& slot, std::uint64_t position) { explain(slot, position, cols); });
  call.launch(call.dispatch.kernel, grid_for(p.count, kCodesAtOnce), kBlock256,
              PackCodesParams{p.count, p.affine.bits, largest_code(p)},
              {call.read(0), call.write(0), errors});
}

MIXTAPE_GPU_LAUNCHERS("latent_codes_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("latent_codes_backward_", backward);
MIXTAPE_GPU_LAUNCHER("pack_codes_forward", pack);

}  // namespace
}  // namespace mixtape::gpu
