#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/cholesky/cholesky_gpu_params.h"

namespace mixtape::gpu {
namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Element row, col of the first matrix and what follows, to the last of the batch.
Argument from(const Buffer& factor, std::int64_t size, std::int64_t row, std::int64_t col) {
  const auto at = static_cast<std::size_t>((row * size + col) * kFloat);
  return Argument(factor).part(at, factor.bytes() - at);
}

// Takes the product with the rows below off rows [begin, end).
void subtract_product(const Call& call, const CholeskyParams& p, std::int64_t begin, std::int64_t end) {
  const Buffer& factor = call.write(0);
  call.queue.gemm({.m = end - begin,
                   .n = end,
                   .k = p.size - end,
                   .trans_a = true,
                   .accumulate = true,
                   .alpha = -1.0f,
                   .a = from(factor, p.size, end, begin),
                   .b = from(factor, p.size, end, 0),
                   .c = from(factor, p.size, begin, 0),
                   .batch = p.batch,
                   .row_a = p.size,
                   .row_b = p.size,
                   .row_c = p.size,
                   .step_a = p.size * p.size,
                   .step_b = p.size * p.size,
                   .step_c = p.size * p.size});
}

void forward(const Call& call) {
  const auto& p = call.params<CholeskyParams>();
  const Buffer &factor = call.write(0), &min_pivot = call.write(1);
  call.launch("cholesky_copy_lower", grid_of(p.batch * p.size * ceil_div(p.size, 256)), kBlock256, p,
              {call.read(0), factor});
  for (std::int64_t begin = (p.size - 1) / kCholeskyBlock * kCholeskyBlock; begin >= 0;
       begin -= kCholeskyBlock) {
    const std::int64_t end = std::min<std::int64_t>(begin + kCholeskyBlock, p.size);
    if (end < p.size) subtract_product(call, p, begin, end);
    const CholeskyGpuParams block{p.size, begin, static_cast<std::int32_t>(end - begin), end == p.size};
    call.launch("cholesky_diagonal", grid_of(p.batch), kBlock256, block, {factor, min_pivot});
    if (begin == 0) break;
    call.launch("cholesky_panel", grid_of(p.batch * begin / kCholeskyBlock), {kCholeskyBlock, 1, 1}, block,
                {factor});
  }
}

MIXTAPE_GPU_LAUNCHER("cholesky_forward_f32", forward);

}  // namespace
}  // namespace mixtape::gpu
