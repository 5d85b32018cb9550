#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_gpu_params.h"

namespace mixtape::gpu {
namespace {

constexpr Grid kThreads = {16, 16, 1};

std::shared_ptr<Memory> floats(const Call& call, std::int64_t count) {
  return call.queue.scratch(static_cast<std::size_t>(count) * sizeof(float));
}

// What every chunk needs by itself.
struct Chunks {
  std::shared_ptr<Memory> solved, weights, decays;

  Chunks(const Call& call, const GatedDeltaRuleParams& p) {
    const std::int64_t count = p.batch * p.value_heads * p.chunks();
    solved = floats(call, count * kDeltaSquare);
    weights = floats(call, count * kDeltaSquare);
    decays = floats(call, count * kDeltaDecays);
    if (count == 0) return;
    call.launch(str("gated_delta_rule_chunks_", call.dtype(0)), grid_of(count), kThreads, p,
                {call.read(0), call.read(1), call.read(3), call.read(4), *solved, *weights, *decays});
  }
};

Grid slices_of(const GatedDeltaRuleParams& p) {
  return grid_of(p.batch * p.value_heads * delta_slices(p.value_dim));
}
std::uint32_t slice_bytes(const GatedDeltaRuleParams& p) {
  return static_cast<std::uint32_t>(delta_slice_floats(p.key_dim) * std::int64_t{sizeof(float)});
}

void forward(const Call& call) {
  const auto& p = call.params<GatedDeltaRuleParams>();
  const Chunks chunks(call, p);
  call.launch(call.dispatch.kernel, slices_of(p), kThreads, p,
              {call.read(0), call.read(1), call.read(2), call.read(4), *chunks.solved, *chunks.weights,
               *chunks.decays, p.has_initial != 0 ? Argument(call.read(5)) : Argument(), call.write(0),
               call.write(1), p.keeps_states != 0 ? Argument(call.write(2)) : Argument()},
              slice_bytes(p));
}

void backward(const Call& call) {
  const auto& p = call.params<GatedDeltaRuleParams>();
  const DType dtype = call.dtype(0);
  const Chunks chunks(call, p);
  const std::int64_t values = p.batch * p.length * p.value_heads * p.value_dim;
  const auto dr = floats(call, values);
  const auto dstates = floats(call, p.batch * p.value_heads * p.chunks() * p.state_size());
  call.launch(
      str("gated_delta_rule_backward_states_", dtype), slices_of(p), kThreads, p,
      {call.read(0), call.read(1), call.read(4), call.read(6),
       p.has_dfinal != 0 ? Argument(call.read(7)) : Argument(), *chunks.solved, *chunks.weights,
       *chunks.decays, *dr, *dstates, call.write_if(p.wanted, p.dv), call.write_if(p.wanted, p.dinitial)},
      slice_bytes(p));
  const std::int64_t blocks = p.batch * p.key_heads * p.chunks();
  if (blocks == 0 || (p.wanted & (p.dq | p.dk | p.dg | p.dbeta)) == 0) return;
  const auto u = floats(call, values);
  // Sums over the value heads of a key head.
  const std::int64_t keys = p.group() > 1 ? p.batch * p.length * p.key_heads * p.key_dim : 0;
  const auto dq_sums = floats(call, keys), dk_sums = floats(call, keys);
  call.launch(
      str("gated_delta_rule_backward_keys_", dtype), grid_of(blocks), kThreads, p,
      {call.read(0), call.read(1), call.read(2), call.read(4), call.read(5), call.read(6), *chunks.solved,
       *chunks.decays, *dr, *dstates, *u, *dq_sums, *dk_sums, call.write_if(p.wanted, p.dq),
       call.write_if(p.wanted, p.dk), call.write_if(p.wanted, p.dg), call.write_if(p.wanted, p.dbeta)});
}

MIXTAPE_GPU_LAUNCHERS("gated_delta_rule_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("gated_delta_rule_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
