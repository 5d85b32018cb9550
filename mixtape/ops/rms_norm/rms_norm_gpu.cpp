#include <algorithm>
#include <array>
#include <span>

#include "mixtape/backend/gpu/rows.h"
#include "mixtape/backend/gpu/variants.h"
#include "mixtape/ops/rms_norm/rms_norm_params.h"

namespace mixtape::gpu {
namespace {

// "_held<n>": a row in registers, n packs a thread; "_ahead": dx of a row while the next one is fetched.
// "_x_held<n>": dx alone, of independent rows, with the bits that it has beside dw.
constexpr std::array kForward = {
    RowVariant{"_held1", 32, kPartOfWarp, 0, 1},   RowVariant{"_held2", 64, 32, 8, 2},
    RowVariant{"_held4", 128, 32, 8, 4},           RowVariant{"_held2", 512, kWarpsOfRow, 1, 2},
    RowVariant{"_held4", 1024, kWarpsOfRow, 1, 4}, RowVariant{"_held8", 4096, kWarpsOfRow, 1, 8}};
// Wider rows are not held: the shares of dw need registers too.
constexpr std::array kBackward = {RowVariant{"_held1", 32, kPartOfWarp, 0, 1},
                                  RowVariant{"_ahead", 1024, kWarpsOfRow, 1, 1},
                                  RowVariant{"_held4", 2048, kWarpsOfRow, 1, 4}};
// Rows that are read twice.
constexpr RowVariant kAny{"_any", 0, 512, 1, 0};

struct Choice {
  RowVariant variant;
  Grid block;
};

Choice choice_of(const Call& call, bool are_packs, std::span<const RowVariant> variants, bool is_forward) {
  const std::int64_t cols = call.params<RmsNormParams>().cols;
  const std::string& kernel = call.dispatch.kernel;
  const std::int64_t packs = ceil_div(cols * static_cast<std::int64_t>(size_of(call.dtype(0))), 16);
  if (are_packs) {
    const RowVariant* v = choose(kernel, variants, packs);
    return v != nullptr ? Choice{*v, block_of(*v, packs)} : Choice{kAny, block_of(kAny, packs)};
  }
  trace_pass_over(kernel + variants.front().suffix, "rows are no whole, aligned packs of 16 bytes");
  if (cols <= 512 && is_forward) return {kAny, {32, 8, 1}};
  const std::int64_t threads = std::min<std::int64_t>(ceil_div(ceil_div(cols, 4), 32) * 32, 512);
  return {kAny, {static_cast<std::uint32_t>(threads), 1, 1}};
}

void forward(const Call& call) {
  const auto& p = call.params<RmsNormParams>();
  const bool are_packs = rows_are_packs({&call.read(0), &call.read(1), &call.write(0)});
  const Choice c = choice_of(call, are_packs, kForward, true);
  call.launch(call.dispatch.kernel + c.variant.suffix, grid_of(ceil_div(p.rows, c.block[1])), c.block, p,
              {call.read(0), call.read(1), call.write(0), call.write(1)});
}

void backward(const Call& call) {
  const auto& p = call.params<RmsNormParams>();
  const Argument dx = call.write_if(p.wanted, p.dx), partials = call.write_if(p.wanted, p.dw);
  const bool are_packs = rows_are_packs({&call.read(0), &call.read(1), &call.read(3)}) && dx.offset % 16 == 0;
  const Choice c = choice_of(call, are_packs, kBackward, false);
  std::vector<Argument> arguments = {call.read(0), call.read(1), call.read(2), call.read(3), dx};
  if (c.variant.held > 0 && (p.wanted & p.dw) == 0) {
    return call.launch(str(call.dispatch.kernel, "_x_held", c.variant.held),
                       grid_of(ceil_div(p.rows, c.block[1])), c.block, p, arguments);
  }
  arguments.push_back(partials);
  call.launch(call.dispatch.kernel + c.variant.suffix, grid_of(ceil_div(p.rows, p.row_block)), c.block, p,
              arguments);
}

void backward_weight(const Call& call) {
  const auto& p = call.params<RmsNormParams>();
  const PartialsParams params{ceil_div(p.rows, p.row_block), p.cols, (p.accumulate & p.dw) != 0};
  launch_partials(call, call.dispatch.kernel, params, call.read(0), call.write(0));
}

MIXTAPE_GPU_LAUNCHERS("rms_norm_forward_", forward);
MIXTAPE_GPU_LAUNCHER("rms_norm_forward_bf16_w_f32", forward);
MIXTAPE_GPU_LAUNCHER("rms_norm_forward_f16_w_f32", forward);
MIXTAPE_GPU_LAUNCHERS("rms_norm_backward_", backward);
MIXTAPE_GPU_LAUNCHER("rms_norm_backward_bf16_w_f32", backward);
MIXTAPE_GPU_LAUNCHER("rms_norm_backward_f16_w_f32", backward);
MIXTAPE_GPU_LAUNCHERS("rms_norm_backward_weight_", backward_weight);

}  // namespace
}  // namespace mixtape::gpu
