#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/layer_norm/layer_norm_params.h"

namespace mixtape::gpu {
namespace {

void forward(const Call& call) {
  const auto& p = call.params<LayerNormParams>();
  const Argument w = p.has_weight != 0 ? Argument(call.read(1)) : Argument();
  const Argument b = p.has_bias != 0 ? Argument(call.read(1 + p.has_weight)) : Argument();
  const Grid block = row_block(p.cols);
  call.launch(call.dispatch.kernel, grid_of(ceil_div(p.rows, block[1])), block, p,
              {call.read(0), w, b, call.write(0), call.write(1)});
}

// The blocks' shares of dw and db go through scratch memory and are added by a second launch each.
void backward(const Call& call) {
  const auto& p = call.params<LayerNormParams>();
  const std::int64_t blocks = ceil_div(p.rows, p.row_block);
  std::shared_ptr<Memory> shares[2];
  constexpr std::uint32_t kBits[2] = {kLayerNormDw, kLayerNormDb};
  for (int i = 0; i < 2; ++i) {
    if ((p.wanted & kBits[i]) != 0)
      shares[i] = call.queue.scratch(static_cast<std::size_t>(blocks * p.cols) * sizeof(float));
  }
  const std::int64_t threads = std::min<std::int64_t>(ceil_div(ceil_div(p.cols, 4), 32) * 32, 256);
  call.launch(call.dispatch.kernel, grid_of(blocks), {static_cast<std::uint32_t>(threads), 1, 1}, p,
              {call.read(0), call.read(1), call.read(2),
               p.has_weight != 0 ? Argument(call.read(3)) : Argument(), call.write_if(p.wanted, kLayerNormDx),
               shares[0] ? Argument(*shares[0]) : Argument(), shares[1] ? Argument(*shares[1]) : Argument()});
  for (int i = 0; i < 2; ++i) {
    if (!shares[i]) continue;
    const PartialsParams params{blocks, p.cols, (p.accumulate & kBits[i]) != 0};
    launch_partials(call, str("layer_norm_backward_shares_", call.dtype(0)), params, *shares[i],
                    call.write_if(p.wanted, kBits[i]));
  }
}

MIXTAPE_GPU_LAUNCHERS("layer_norm_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("layer_norm_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
