#include <bit>

#include "mixtape/ops/embedding/embedding_gpu.h"
#include "mixtape/ops/quantize/quantize_gpu_params.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_gpu_params.h"
#include "mixtape/ops/quantized_embedding/quantized_embedding_params.h"

namespace mixtape::gpu {
namespace {

QuantizedRowsParams gpu_params(const QuantizedEmbeddingParams& p) {
  const auto group_chunks = static_cast<std::uint32_t>(p.affine.group_size / kCodesAtOnce);
  return {p.lookup, p.affine.bits, std::countr_zero(group_chunks), p.out};
}

// Blocks in y for rows of which a warp takes `columns` at a time; more than 65535 are walked.
std::uint32_t row_parts(std::int64_t hidden, std::int64_t columns) {
  return static_cast<std::uint32_t>(std::min<std::int64_t>(ceil_div(hidden, columns), 65535));
}

void forward(const Call& call) {
  const auto& p = call.params<QuantizedEmbeddingParams>();
  const Grid grid = {grid_of(ceil_div(p.lookup.count, 8))[0],
                     row_parts(p.lookup.hidden, 4 * 32 * kCodesAtOnce), 1};
  call.launch(str(call.dispatch.kernel, "_", p.affine.bits), grid, {32, 8, 1}, gpu_params(p),
              {call.read(0), call.read(1), call.read(2), call.read(3), call.write(0),
               call.index_errors(p.lookup.rows, p.lookup.ids_are_signed != 0)});
}

void backward(const Call& call) {
  const auto& p = call.params<QuantizedEmbeddingParams>();
  const Buffer &codes = call.read(0), &ids = call.read(1), &dy = call.read(2);
  const Segments segments = group_rows(call, ids, dy, p.lookup);
  const Grid grid = {grid_of(ceil_div(p.lookup.rows, 8 * kRowsOfWarp))[0],
                     row_parts(p.lookup.hidden, 32 * kCodesAtOnce), 1};
  const char* variant = dy.byte_offset() % 16 == 0 ? "_packs" : "_any";
  call.launch(call.dispatch.kernel + variant, grid, {32, 8, 1}, gpu_params(p),
              {dy, segments.places(), *segments.begins, segments.full_sums(), codes,
               call.write_if(p.out.wanted, p.out.dscales), call.write_if(p.out.wanted, p.out.dbiases)});
}

MIXTAPE_GPU_LAUNCHERS("quantized_embedding_forward_f32_", forward);
MIXTAPE_GPU_LAUNCHERS("quantized_embedding_forward_bf16_", forward);
MIXTAPE_GPU_LAUNCHERS("quantized_embedding_forward_f16_", forward);
MIXTAPE_GPU_LAUNCHERS("quantized_embedding_backward_f32_", backward);
MIXTAPE_GPU_LAUNCHERS("quantized_embedding_backward_bf16_", backward);
MIXTAPE_GPU_LAUNCHERS("quantized_embedding_backward_f16_", backward);

}  // namespace
}  // namespace mixtape::gpu
