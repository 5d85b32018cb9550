#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/l2_norm/l2_norm_params.h"

namespace mixtape::gpu {
namespace {

struct Shape {
  std::string suffix;
  Grid block;
};

// A row of up to 32 packs of 16 bytes takes part of a warp, of up to 128 a warp, of up to 2048 a block; wider
// ones and those that are no packs are read twice.
Shape shape_of(std::int64_t cols, std::int64_t bytes, bool is_packed) {
  if (!is_packed) return {"_ones", row_block(cols)};
  const std::int64_t packs = ceil_div(cols * bytes, 16);
  if (packs <= 32) {
    const std::uint32_t threads = std::bit_ceil(static_cast<std::uint32_t>(packs));
    return {"_held1", {threads, 256 / threads, 1}};
  }
  if (packs <= 128) return {packs <= 64 ? "_held2" : "_held4", {32, 8, 1}};
  if (packs > 2048) return {"_packs", {512, 1, 1}};
  return {"_held4", {static_cast<std::uint32_t>(ceil_div(ceil_div(packs, 4), 32) * 32), 1, 1}};
}

void launch(const Call& call, bool is_packed) {
  const auto& p = call.params<L2NormParams>();
  const Shape shape = shape_of(p.cols, static_cast<std::int64_t>(size_of(call.dtype(0))), is_packed);
  std::vector<Argument> arguments(call.dispatch.reads.begin(), call.dispatch.reads.end());
  arguments.insert(arguments.end(), call.dispatch.writes.begin(), call.dispatch.writes.end());
  call.launch(call.dispatch.kernel + shape.suffix, grid_of(ceil_div(p.rows, shape.block[1])), shape.block, p,
              arguments);
}

void forward(const Call& call) { launch(call, rows_are_packs({&call.read(0), &call.write(0)})); }
void backward(const Call& call) {
  launch(call, rows_are_packs({&call.read(0), &call.read(2), &call.write(0)}));
}

MIXTAPE_GPU_LAUNCHERS("l2_norm_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("l2_norm_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
