#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/ops/gptq/gptq_gpu_params.h"
#include "mixtape/ops/gptq/gptq_params.h"

namespace mixtape::gpu {
namespace {

// Elements from `at` on.
Argument floats_from(const Argument& whole, std::int64_t at) {
  const auto bytes = static_cast<std::size_t>(at) * sizeof(float);
  return whole.part(bytes, whole.bytes - bytes);
}

// sums [batch, rows, width] = errors of the columns before `begin` times the factor's rows of the block.
void feed_back(const Call& call, const GptqParams& p, std::int64_t begin, std::int64_t width,
               const Argument& errors, const Argument& sums) {
  call.queue.gemm({.m = p.rows,
                   .n = width,
                   .k = begin,
                   .trans_b = true,
                   .a = errors,
                   .b = floats_from(call.read(1), begin * p.cols),
                   .c = sums,
                   .batch = p.batch,
                   .row_a = p.cols,
                   .row_b = p.cols,
                   .row_c = width,
                   .step_a = p.rows * p.cols,
                   .step_b = p.cols * p.cols,
                   .step_c = p.rows * width});
}

void forward(const Call& call) {
  const auto& p = call.params<GptqParams>();
  const std::int64_t rows = p.batch * p.rows;
  const auto errors = call.queue.scratch(static_cast<std::size_t>(rows * p.cols) * sizeof(float));
  const auto sums = call.queue.scratch(static_cast<std::size_t>(rows * kGptqCols) * sizeof(float));
  for (std::int64_t begin = 0; begin < p.cols; begin += kGptqCols) {
    const std::int64_t width = std::min<std::int64_t>(kGptqCols, p.cols - begin);
    if (begin > 0) feed_back(call, p, begin, width, *errors, *sums);
    const GptqGpuParams block{
        p.rows, p.cols, begin, static_cast<std::int32_t>(width), p.format.bits, p.format.group_size};
    call.launch(str("gptq_block_", call.dtype(2)), grid_of(p.batch * ceil_div(p.rows, kGptqRows)),
                {32, kGptqRows, 1}, block,
                {call.read(0), call.read(1), call.read(2), call.read(3), *sums, *errors, call.write(0)});
  }
}

MIXTAPE_GPU_LAUNCHERS("gptq_forward_", forward);

}  // namespace
}  // namespace mixtape::gpu
