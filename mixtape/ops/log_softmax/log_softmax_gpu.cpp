#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/log_softmax/log_softmax_params.h"

namespace mixtape::gpu {
namespace {

struct RowShape {
  Grid grid, block;
  int held;  // packs per thread; 0 where a row doesn't fit
};

// Rows of up to 128 packs of 16 bytes go to a warp, of up to 2048 to a block; longer ones are read twice.
RowShape shape_of(const Call& call, const LogSoftmaxParams& p, bool is_packed) {
  const std::int64_t packs = ceil_div(p.cols * static_cast<std::int64_t>(size_of(call.dtype(0))), 16);
  for (const int held : {1, 2, 4}) {
    if (is_packed && packs <= 32 * held) return {grid_of(ceil_div(p.rows, 8)), {32, 8, 1}, held};
  }
  const int held = !is_packed || packs > 2048 ? 0 : packs <= 1024 ? 2 : 4;
  const std::int64_t units = is_packed ? packs : p.cols;
  const std::int64_t threads =
      std::min<std::int64_t>(ceil_div(ceil_div(units, std::max(held, 1)), 32) * 32, 512);
  return {grid_of(p.rows), {static_cast<std::uint32_t>(threads), 1, 1}, held};
}

void launch(const Call& call, bool is_packed) {
  const auto& p = call.params<LogSoftmaxParams>();
  const RowShape shape = shape_of(call, p, is_packed);
  std::vector<Argument> arguments(call.dispatch.reads.begin(), call.dispatch.reads.end());
  arguments.insert(arguments.end(), call.dispatch.writes.begin(), call.dispatch.writes.end());
  const std::string variant = shape.held > 0 ? str("_held", shape.held) : is_packed ? "_packs" : "_ones";
  call.launch(call.dispatch.kernel + variant, shape.grid, shape.block, p, arguments);
}

void forward(const Call& call) { launch(call, rows_are_packs({&call.read(0), &call.write(0)})); }
void backward(const Call& call) {
  launch(call, rows_are_packs({&call.read(0), &call.read(2), &call.write(0)}));
}

MIXTAPE_GPU_LAUNCHERS("log_softmax_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("log_softmax_backward_", backward);

}  // namespace
}  // namespace mixtape::gpu
