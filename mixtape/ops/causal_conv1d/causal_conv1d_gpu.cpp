#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/causal_conv1d/causal_conv1d_params.h"

namespace mixtape::gpu {
namespace {

struct Geometry {
  std::string suffix;
  Grid grid, block;
};

// Two channels are read at once: pairs of them are aligned.
bool are_pairs(const Buffer& b) { return b.byte_offset() % (2 * size_of(b.dtype())) == 0; }

Geometry geometry_of(const CausalConv1dParams& p, bool is_aligned) {
  const bool four = p.taps == 4 && p.channels % 2 == 0 && is_aligned;
  const std::int64_t groups = four ? p.channels / 2 : p.channels, runs = p.batch * p.runs();
  const Grid block = groups > 32 ? Grid{64, 4, 1} : Grid{32, 8, 1};
  return {four ? "_four" : "_any", grid_of(ceil_div(groups, block[0]) * ceil_div(runs, block[1])), block};
}

Argument bias_of(const Call& call, const CausalConv1dParams& p) {
  return p.has_bias != 0 ? Argument(call.read(2)) : Argument();
}
Argument history_of(const Call& call, const CausalConv1dParams& p) {
  return p.has_history != 0 ? Argument(call.read(2 + p.has_bias)) : Argument();
}

bool all_are_pairs(const Call& call) {
  bool all = true;
  for (const Buffer& b : call.dispatch.reads) all = all && are_pairs(b);
  for (const Buffer& b : call.dispatch.writes) all = all && are_pairs(b);
  return all;
}

void forward(const Call& call) {
  const auto& p = call.params<CausalConv1dParams>();
  const Geometry g = geometry_of(p, all_are_pairs(call));
  call.launch(call.dispatch.kernel + g.suffix, g.grid, g.block, p,
              {call.read(0), call.read(1), bias_of(call, p), history_of(call, p), call.write(0)});
}

void backward(const Call& call) {
  const auto& p = call.params<CausalConv1dParams>();
  const Geometry g = geometry_of(p, all_are_pairs(call));
  const bool has_shares = (p.wanted & (p.dw | p.dbias)) != 0;
  call.launch(call.dispatch.kernel + g.suffix, g.grid, g.block, p,
              {call.read(0), call.read(1), bias_of(call, p), history_of(call, p),
               call.read(2 + p.has_bias + p.has_history), call.write_if(p.wanted, p.dx),
               call.write_if(p.wanted, p.dhistory),
               has_shares ? Argument(call.write(output_index(p.wanted, p.dw))) : Argument()});
}

void backward_weight(const Call& call) {
  const auto& p = call.params<CausalConv1dParams>();
  const std::uint32_t wanted = p.wanted / p.dw;  // of the two that are written here
  call.launch(call.dispatch.kernel, grid_for((p.taps + 1) * p.channels), kBlock256, p,
              {call.read(0), call.write_if(wanted, 1), call.write_if(wanted, p.dbias / p.dw)});
}

MIXTAPE_GPU_LAUNCHERS("causal_conv1d_forward_", forward);
MIXTAPE_GPU_LAUNCHER("causal_conv1d_forward_bf16_w_f32", forward);
MIXTAPE_GPU_LAUNCHER("causal_conv1d_forward_f16_w_f32", forward);
MIXTAPE_GPU_LAUNCHERS("causal_conv1d_backward_", backward);
MIXTAPE_GPU_LAUNCHER("causal_conv1d_backward_bf16_w_f32", backward);
MIXTAPE_GPU_LAUNCHER("causal_conv1d_backward_f16_w_f32", backward);
MIXTAPE_GPU_LAUNCHERS("causal_conv1d_backward_weight_", backward_weight);

}  // namespace
}  // namespace mixtape::gpu
