#include "mixtape/backend/gpu/rows.h"
#include "mixtape/backend/gpu/sort.h"
#include "mixtape/ops/moe_route/moe_route_params.h"
#include "mixtape/ops/top_k/top_k_gpu.h"

namespace mixtape::gpu {
namespace {

constexpr Grid kRowsOfWarps = {32, 8, 1};

void route_forward(const Call& call) {
  const auto& p = call.params<MoeRouteParams>();
  const Buffer &logits = call.read(0), &weights = call.write(0), &indices = call.write(1);
  const Grid grid = grid_of(ceil_div(p.tokens, 8));
  if (const int held = held_columns(p.experts, p.k); held > 0) {
    return call.launch(str(call.dispatch.kernel, "_held", held), grid, kRowsOfWarps, p,
                       {logits, weights, indices});
  }
  select_rows(call, logits, p.k, {}, indices);
  call.launch(str("moe_route_weights_", logits.dtype()), grid, kRowsOfWarps, p, {logits, indices, weights});
}

void route_backward(const Call& call) {
  const auto& p = call.params<MoeRouteParams>();
  call.launch(call.dispatch.kernel, grid_of(ceil_div(p.tokens, 8)), kRowsOfWarps, p,
              {call.read(0), call.read(1), call.read(2), call.read(3), call.write(0),
               call.index_errors(p.experts, false)});
}

void plan(const Call& call) {
  const auto& p = call.params<MoePlanParams>();
  const SortedKeys sorted = sort_keys(call, call.read(0), p.slots, p.experts, false, call.write(3));
  call.launch("moe_plan_places", grid_for(p.slots), kBlock256, p,
              {*sorted.places, call.read(0), call.write(0), call.write(1), call.write(2), call.write(4)});
}

std::string variant(const Call& call, bool has_packs) {
  return call.dispatch.kernel + (has_packs ? "_packs" : "_any");
}

void combine_forward(const Call& call) {
  const auto& p = call.params<MoeCombineParams>();
  const Buffer &x = call.read(0), &y = call.write(0), addend = p.has_addend != 0 ? call.read(3) : Buffer();
  const bool has_packs = rows_are_packs({&x, &y}) && addend.byte_offset() % 16 == 0;
  const auto pack = static_cast<std::int64_t>(has_packs ? 16 / size_of(x.dtype()) : 1);
  call.launch(variant(call, has_packs), grid_for(p.tokens * p.cols / pack), kBlock256, p,
              {x, call.read(1), call.read(2), addend, y, call.index_errors(p.tokens * p.k, false)});
}

void combine_backward(const Call& call) {
  const auto& p = call.params<MoeCombineParams>();
  const Buffer &x = call.read(0), &dy = call.read(3);
  const Argument dx = call.write_if(p.wanted, p.dx), dweights = call.write_if(p.wanted, p.dweights);
  const bool has_packs = rows_are_packs({&x, &dy}) && dx.offset % 16 == 0;
  call.launch(variant(call, has_packs), grid_of(ceil_div(p.tokens * p.k, 8)), kRowsOfWarps, p,
              {x, call.read(1), call.read(2), dy, dx, dweights, call.index_errors(p.tokens * p.k, false)});
}

MIXTAPE_GPU_LAUNCHERS("moe_route_forward_", route_forward);
MIXTAPE_GPU_LAUNCHERS("moe_route_backward_", route_backward);
MIXTAPE_GPU_LAUNCHER("moe_plan", plan);
MIXTAPE_GPU_LAUNCHERS("moe_combine_forward_", combine_forward);
MIXTAPE_GPU_LAUNCHERS("moe_combine_backward_", combine_backward);

}  // namespace
}  // namespace mixtape::gpu
