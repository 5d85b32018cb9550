#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/outer_product/outer_product_gpu_params.h"

namespace mixtape::gpu {
namespace {

// How rows of matrices are moved: `size` elements at once, by threads beside each other and above each other.
struct Units {
  std::string suffix;
  std::int64_t size;
  Grid block;
  std::uint32_t parts;  // blocks beside each other for a row
};

Units units_of(const OuterProductParams& p, std::initializer_list<const Buffer*> wide) {
  const Buffer& first = **wide.begin();
  const bool is_packed = rows_are_packs(wide);
  const std::int64_t size = is_packed ? static_cast<std::int64_t>(16 / size_of(first.dtype())) : 1;
  const std::int64_t units = ceil_div(p.cols, size);
  const std::uint32_t x = std::bit_ceil(static_cast<std::uint32_t>(std::min<std::int64_t>(units, 128)));
  return {is_packed ? "_packs" : "_ones",
          size,
          {x, 256 / x, 1},
          static_cast<std::uint32_t>(std::min<std::int64_t>(ceil_div(units, x), 65535))};
}

void forward(const Call& call) {
  const auto& p = call.params<OuterProductParams>();
  const Units u = units_of(p, {&call.write(0), &call.read(1)});
  const std::int64_t blocks = ceil_div(p.batch * p.rows, std::int64_t{u.block[1]} * kOuterRowsOfThread);
  call.launch(call.dispatch.kernel + u.suffix, {grid_of(blocks)[0], u.parts, 1}, u.block, p,
              {call.read(0), call.read(1), call.write(0)});
}

void backward_a(const Call& call) {
  const auto& p = call.params<OuterProductParams>();
  const Units u = units_of(p, {&call.read(1), &call.read(0)});
  const Grid block = row_block(ceil_div(p.cols, u.size));
  call.launch(call.dispatch.kernel + u.suffix, grid_of(ceil_div(p.batch * p.rows, block[1])), block, p,
              {call.read(0), call.read(1), call.write(0)});
}

void backward_b(const Call& call) {
  const auto& p = call.params<OuterProductParams>();
  const Units u = units_of(p, {&call.read(1)});
  const std::int64_t blocks = p.batch * p.blocks();
  const auto partials = call.queue.scratch(static_cast<std::size_t>(blocks * p.cols) * sizeof(float));
  call.launch(str("outer_product_row_sums_", call.dtype(1), u.suffix), {grid_of(blocks)[0], u.parts, 1},
              u.block, p, {call.read(0), call.read(1), *partials});
  call.launch(str("outer_product_add_blocks_", call.dtype(1)), grid_for(p.batch * p.cols), kBlock256, p,
              {*partials, call.write(0)});
}

MIXTAPE_GPU_LAUNCHERS("outer_product_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("outer_product_backward_a_", backward_a);
MIXTAPE_GPU_LAUNCHERS("outer_product_backward_b_", backward_b);

}  // namespace
}  // namespace mixtape::gpu
