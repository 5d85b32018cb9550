#include <array>
#include <span>

#include "mixtape/backend/gpu/rows.h"
#include "mixtape/backend/gpu/variants.h"
#include "mixtape/ops/softmax/softmax_params.h"

namespace mixtape::gpu {
namespace {

// A row stays in the registers of a warp, then of a block of up to 512 threads.
constexpr std::array kHeld = {RowVariant{"_held1", 32, 32, 8, 1}, RowVariant{"_held2", 64, 32, 8, 2},
                              RowVariant{"_held4", 128, 32, 8, 4},
                              RowVariant{"_held4", 4 * 512, kWarpsOfRow, 1, 4},
                              RowVariant{"_held8", 8 * 512, kWarpsOfRow, 1, 8}};  // forward f32 alone

struct Choice {
  std::string suffix;
  Grid grid, block;
  std::uint32_t shared_bytes = 0;
};

// A row too wide for a block is held by a cluster of them, or read twice. At most `held` packs per thread.
// The most packs per thread in registers, and rows that a cluster goes through.
struct Most {
  int held;
  std::int64_t rows;
};

Choice choice_of(const Call& call, bool are_packs, Most most) {
  const auto& p = call.params<SoftmaxParams>();
  const std::string& kernel = call.dispatch.kernel;
  if (!are_packs) {
    trace_pass_over(kernel + "_held*", "rows are no whole, aligned packs of 16 bytes");
    if (p.cols <= 1024) return {"_any", grid_of(ceil_div(p.rows, 8)), {32, 8, 1}};
    return {"_any", grid_of(p.rows), {512, 1, 1}};
  }
  const std::size_t bytes = size_of(call.dtype(0));
  const std::int64_t packs = ceil_div(p.cols * static_cast<std::int64_t>(bytes), 16);
  const std::span variants(kHeld.begin(), kHeld.end() - (most.held < 8 ? 1 : 0));
  if (const RowVariant* v = choose(kernel, variants, packs))
    return {v->suffix, grid_of(ceil_div(p.rows, v->block_rows)), block_of(*v, packs)};
  const ClusterShape cluster = cluster_shape(p.rows, p.cols, bytes, most.rows);
  if (cluster.size > 0 && call.queue.has(kernel + cluster.suffix()))
    return {cluster.suffix(), cluster.grid, cluster.block, cluster.block_bytes()};
  trace_pass_over(kernel + "_cluster*", cluster.size > 0 ? "this card has none" : "a row is too wide");
  return {"_packs", grid_of(p.rows), {512, 1, 1}};
}

void forward(const Call& call) {
  const Choice c = choice_of(call, rows_are_packs({&call.read(0), &call.write(0)}),
                             {.held = call.dtype(0) == DType::f32 ? 8 : 4, .rows = kClusterRows});
  call.launch(call.dispatch.kernel + c.suffix, c.grid, c.block, call.params<SoftmaxParams>(),
              {call.read(0), call.write(0)}, c.shared_bytes);
}

void backward(const Call& call) {
  const Choice c =
      choice_of(call, rows_are_packs({&call.read(0), &call.read(1), &call.write(0)}), {.held = 4, .rows = 1});
  call.launch(call.dispatch.kernel + c.suffix, c.grid, c.block, call.params<SoftmaxParams>(),
              {call.read(0), call.read(1), call.write(0)}, c.shared_bytes);
}

MIXTAPE_GPU_LAUNCHERS("softmax_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("softmax_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
