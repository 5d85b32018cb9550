#include "mixtape/ops/embedding/embedding_gpu.h"

#include "mixtape/backend/gpu/rows.h"

namespace mixtape::gpu {
namespace {

const char* variant(bool has_packs) { return has_packs ? "_packs" : "_any"; }

// Blocks in y for rows of which a warp or a block takes `bytes` at a time; more than 65535 are walked.
std::uint32_t row_parts(std::int64_t hidden, DType dtype, std::int64_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>(ceil_div(hidden * static_cast<std::int64_t>(size_of(dtype)), bytes), 65535));
}

void forward(const Call& call) {
  const auto& p = call.params<EmbeddingParams>();
  const Buffer& y = call.write(0);
  const Grid grid = {grid_of(ceil_div(p.count, 8))[0], row_parts(p.hidden, y.dtype(), 4 * 32 * 16), 1};
  call.launch(call.dispatch.kernel, grid, {32, 8, 1}, p,
              {call.read(0), call.read(1), y, call.index_errors(p.rows, p.ids_are_signed != 0)});
}

void backward(const Call& call) {
  const auto& p = call.params<EmbeddingParams>();
  const Buffer& dtable = call.write(0);
  const Segments segments = group_rows(call, call.read(0), call.read(1), p);
  const bool has_packs = rows_are_packs({&call.read(1), &dtable});
  const std::int64_t pack = has_packs ? static_cast<std::int64_t>(16 / size_of(dtable.dtype())) : 1;
  const std::int64_t warps = ceil_div(p.rows, kTableRows) * ceil_div(p.hidden, 32 * pack);
  call.launch(call.dispatch.kernel + variant(has_packs), grid_of(ceil_div(warps, 8)), {32, 8, 1}, p,
              {call.read(1), segments.places(), *segments.begins, segments.full_sums(), dtable});
}

MIXTAPE_GPU_LAUNCHERS("embedding_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("embedding_backward_", backward);

}  // namespace

Segments group_rows(const Call& call, const Buffer& ids, const Buffer& dy, const EmbeddingParams& p) {
  Segments s;
  s.begins = call.queue.scratch(static_cast<std::size_t>(p.rows + 1) * sizeof(std::uint32_t));
  s.sorted = sort_keys(call, ids, p.count, p.rows, p.ids_are_signed != 0, *s.begins);
  const std::int64_t blocks = p.count / kSegmentBlock;
  if (blocks == 0) return s;
  s.sums = call.queue.scratch(static_cast<std::size_t>(blocks * p.hidden) * sizeof(float));
  const Grid grid = {grid_of(blocks)[0], row_parts(p.hidden, dy.dtype(), 256 * 16), 1};
  call.launch(str("embedding_blocks_", dy.dtype(), variant(rows_are_packs({&dy}))), grid, kBlock256, p,
              {dy, *s.sorted.keys, *s.sorted.places, *s.begins, *s.sums});
  const Grid columns = {grid_of(blocks)[0], row_parts(p.hidden, DType::f32, 256 * 4), 1};
  call.launch("embedding_add_blocks", columns, kBlock256, p, {*s.sorted.keys, *s.begins, *s.sums});
  return s;
}

}  // namespace mixtape::gpu
