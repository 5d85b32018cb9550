// Which kernels run: gated_delta_rule_*_tensor (gated_delta_rule_cuda.cu), products on matrix units, for bf16, heads of
// whole 16-byte packs up to 128, aligned buffers, on cards that have the shared memory: Hopper, for the forward large
// Ampere ones too; gated_delta_rule_* (gated_delta_rule_gpu.cu), in f32, for everything else.
#include <algorithm>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/variants.h"
#include "mixtape/ops/gated_delta_rule/gated_delta_rule_gpu_params.h"

namespace mixtape::gpu {
namespace {

constexpr Grid kThreads = {16, 16, 1};

std::shared_ptr<Memory> floats(const Call& call, std::int64_t count) {
  return call.queue.scratch(static_cast<std::size_t>(count) * sizeof(float));
}

// What every chunk needs by itself: matrices in f32, or by the kernel for matrix units in two parts of bf16.
struct Chunks {
  std::shared_ptr<Memory> solved, weights, decays;

  Chunks(const Call& call, const GatedDeltaRuleParams& p, const std::string& kernel, Grid threads,
         std::uint32_t shared_bytes) {
    const std::int64_t count = p.batch * p.value_heads * p.chunks();
    solved = floats(call, count * kDeltaSquare);
    weights = floats(call, count * kDeltaSquare);
    decays = floats(call, count * kDeltaDecays);
    if (count == 0) return;
    call.launch("gated_delta_rule_chunks_" + kernel, grid_of(count), threads, p,
                {call.read(0), call.read(1), call.read(3), call.read(4), *solved, *weights, *decays},
                shared_bytes);
  }
};
Chunks chunks_on_cores(const Call& call, const GatedDeltaRuleParams& p) {
  return {call, p, name(call.dtype(0)), kThreads, 0};
}

Grid slices_of(const GatedDeltaRuleParams& p) {
  return grid_of(p.batch * p.value_heads * delta_slices(p.value_dim));
}
std::uint32_t slice_bytes(const GatedDeltaRuleParams& p) {
  return static_cast<std::uint32_t>(delta_slice_floats(p.key_dim) * std::int64_t{sizeof(float)});
}

constexpr Grid kTensorThreads = {256, 1, 1}, kTensorKeysThreads = {512, 1, 1};
// Of shared memory, for so many values of bf16.
constexpr std::uint32_t tensor_bytes(std::int64_t values) { return static_cast<std::uint32_t>(2 * values); }
constexpr std::int64_t kKeyTile = kDeltaChunk * kDeltaTensorDim, kSliceTile = kDeltaSlice * kDeltaChunk,
                       kStateTile = kDeltaSlice * kDeltaTensorDim,
                       kHeadTile = kDeltaTensorDim * kDeltaTensorDim;
constexpr std::uint32_t kForwardBytes = tensor_bytes(2 * kStateTile + 3 * kKeyTile + 2 * kDeltaSquare +
                                                     6 * kSliceTile + kDeltaChunk * (kDeltaSlice + 8)),
                        kStatesBytes =
                            tensor_bytes(2 * kStateTile + 3 * kKeyTile + 2 * kDeltaSquare + 7 * kSliceTile),
                        kKeysBytes = tensor_bytes(6 * kKeyTile + 2 * kHeadTile + 4 * kDeltaSquare);

// What the kernels for matrix units do not take, of which one wants so much shared memory; null where they run.
const char* obstacle_to_tensors(const Call& call, const GatedDeltaRuleParams& p, std::uint32_t shared_bytes) {
  const auto is_aligned = [](const Buffer& b) { return b.byte_offset() % 16 == 0; };
  if (call.dtype(0) != DType::bf16) return "it takes bf16 alone";
  if (p.key_dim % 8 != 0 || p.value_dim % 8 != 0) return "a head is no whole packs of 16 bytes";
  if (p.key_dim > kDeltaTensorDim || p.value_dim > kDeltaTensorDim) return "a head is wider than 128";
  if (std::max(p.value_heads * p.value_dim, p.key_heads * p.key_dim) >= (1 << 23))
    return "rows are too far apart for 23 bits";
  if (!std::ranges::all_of(call.dispatch.reads, is_aligned) ||
      !std::ranges::all_of(call.dispatch.writes, is_aligned))
    return "a buffer is not aligned to 16 bytes";
  return call.queue.has("gated_delta_rule_forward_tensor", shared_bytes)
             ? nullptr
             : "this card has none, or too little shared memory";
}
bool runs_on_tensors(const Call& call, const GatedDeltaRuleParams& p, std::uint32_t shared_bytes) {
  const char* obstacle = obstacle_to_tensors(call, p, shared_bytes);
  if (obstacle != nullptr) trace_pass_over("gated_delta_rule_forward_tensor", obstacle);
  return obstacle == nullptr;
}

Chunks chunks_on_tensors(const Call& call, const GatedDeltaRuleParams& p) {
  return {call, p, "tensor", kTensorThreads, tensor_bytes(2 * kKeyTile)};
}

void forward_on_tensors(const Call& call, const GatedDeltaRuleParams& p) {
  const Chunks chunks = chunks_on_tensors(call, p);
  call.launch("gated_delta_rule_forward_tensor", slices_of(p), kTensorThreads, p,
              {call.read(0), call.read(1), call.read(2), call.read(4), *chunks.solved, *chunks.weights,
               *chunks.decays, p.has_initial != 0 ? Argument(call.read(5)) : Argument(), call.write(0),
               call.write(1), p.keeps_states != 0 ? Argument(call.write(2)) : Argument()},
              kForwardBytes);
}

void backward_on_tensors(const Call& call, const GatedDeltaRuleParams& p) {
  const Chunks chunks = chunks_on_tensors(call, p);
  const std::int64_t values = p.batch * p.length * p.value_heads * p.value_dim;
  const auto rounded = [&](std::int64_t count) {
    return call.queue.scratch(static_cast<std::size_t>(2 * count));
  };
  const auto dr = rounded(values), dstates = rounded(p.batch * p.value_heads * p.chunks() * p.state_size());
  call.launch(
      "gated_delta_rule_backward_states_tensor", slices_of(p), kTensorThreads, p,
      {call.read(0), call.read(1), call.read(4), call.read(6),
       p.has_dfinal != 0 ? Argument(call.read(7)) : Argument(), *chunks.solved, *chunks.weights,
       *chunks.decays, *dr, *dstates, call.write_if(p.wanted, p.dv), call.write_if(p.wanted, p.dinitial)},
      kStatesBytes);
  const std::int64_t blocks = p.batch * p.key_heads * p.chunks();
  if (blocks == 0 || (p.wanted & (p.dq | p.dk | p.dg | p.dbeta)) == 0) return;
  call.launch(
      "gated_delta_rule_backward_keys_tensor", grid_of(blocks), kTensorKeysThreads, p,
      {call.read(0), call.read(1), call.read(2), call.read(4), call.read(5), call.read(6), *chunks.solved,
       *chunks.decays, *dr, *dstates, call.write_if(p.wanted, p.dq), call.write_if(p.wanted, p.dk),
       call.write_if(p.wanted, p.dg), call.write_if(p.wanted, p.dbeta)},
      kKeysBytes);
}

void forward(const Call& call) {
  const auto& p = call.params<GatedDeltaRuleParams>();
  if (runs_on_tensors(call, p, kForwardBytes)) return forward_on_tensors(call, p);
  const Chunks chunks = chunks_on_cores(call, p);
  call.launch(call.dispatch.kernel, slices_of(p), kThreads, p,
              {call.read(0), call.read(1), call.read(2), call.read(4), *chunks.solved, *chunks.weights,
               *chunks.decays, p.has_initial != 0 ? Argument(call.read(5)) : Argument(), call.write(0),
               call.write(1), p.keeps_states != 0 ? Argument(call.write(2)) : Argument()},
              slice_bytes(p));
}

void backward(const Call& call) {
  const auto& p = call.params<GatedDeltaRuleParams>();
  if (runs_on_tensors(call, p, std::max(kStatesBytes, kKeysBytes))) return backward_on_tensors(call, p);
  const DType dtype = call.dtype(0);
  const Chunks chunks = chunks_on_cores(call, p);
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
