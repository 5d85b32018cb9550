#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/elementwise/scale_rows_params.h"

namespace mixtape::gpu {
namespace {

struct Units {
  std::string kernel;
  std::int64_t size;  // elements that are moved at once
};

Units units(const Call& call, std::initializer_list<const Buffer*> wide) {
  if (!rows_are_packs(wide)) return {call.dispatch.kernel + "_ones", 1};
  return {call.dispatch.kernel + "_packs", static_cast<std::int64_t>(16 / size_of(call.dtype(0)))};
}

void forward(const Call& call) {
  const auto& p = call.params<ScaleRowsParams>();
  const Units u = units(call, {&call.read(0), &call.write(0)});
  call.launch(u.kernel, grid_for(p.rows * p.cols, 4 * u.size), kBlock256, p,
              {call.read(0), call.read(1), call.write(0)});
}

void backward_s(const Call& call) {
  const auto& p = call.params<ScaleRowsParams>();
  const Units u = units(call, {&call.read(0), &call.read(1)});
  const Grid block = row_block(ceil_div(p.cols, u.size));
  call.launch(u.kernel, grid_of(ceil_div(p.rows, block[1])), block, p,
              {call.read(0), call.read(1), call.write(0)});
}

MIXTAPE_GPU_LAUNCHERS("scale_rows_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("scale_rows_backward_s_", backward_s);

}  // namespace
}  // namespace mixtape::gpu
