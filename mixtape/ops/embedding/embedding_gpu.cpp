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

// Of a table so large, most of whose rows are zeros, these are written while the ids are sorted.
constexpr std::size_t kLargeTable = std::size_t{1} << 24;

Segments group_beside_zeros(const Call& call, const Buffer& dtable, const EmbeddingParams& p) {
  const auto marks = call.queue.scratch(static_cast<std::size_t>(p.rows) * sizeof(std::uint32_t));
  call.queue.zero(*marks);
  call.launch("embedding_mark", grid_for(p.count), kBlock256, p, {call.read(0), *marks});
  Segments segments;
  call.queue.beside(
      [&] {
        call.launch(str("embedding_zero_", dtable.dtype()), grid_of(2 * call.queue.multiprocessors()),
                    kBlock256, p, {*marks, dtable});
      },
      [&] { segments = group_rows(call, call.read(0), call.read(1), p); });
  return segments;
}

void backward(const Call& call) {
  EmbeddingParams p = call.params<EmbeddingParams>();
  const Buffer& dtable = call.write(0);
  const bool is_beside = p.accumulate == 0 && dtable.bytes() >= kLargeTable;
  const Segments segments =
      is_beside ? group_beside_zeros(call, dtable, p) : group_rows(call, call.read(0), call.read(1), p);
  p.has_zeros = is_beside;
  const Grid grid = {grid_of(ceil_div(p.rows, 8 * kRowsOfWarp))[0],
                     row_parts(p.hidden, dtable.dtype(), kPacksOfLane * 32 * 16), 1};
  const bool has_packs = rows_are_packs({&call.read(1), &dtable});
  call.launch(call.dispatch.kernel + variant(has_packs), grid, {32, 8, 1}, p,
              {call.read(1), segments.places(), *segments.begins, segments.full_sums(), dtable});
}

MIXTAPE_GPU_LAUNCHERS("embedding_forward_", forward);
MIXTAPE_GPU_LAUNCHERS("embedding_backward_", backward);

}  // namespace

Segments group_rows(const Call& call, const Buffer& ids, const Buffer& dy, const EmbeddingParams& p) {
  Segments s;
  s.sorted = sort_keys(call, ids, p.count, p.rows, p.ids_are_signed != 0);
  s.begins = call.queue.scratch(static_cast<std::size_t>(p.rows + 1) * sizeof(std::uint32_t));
  find_begins(call, s.sorted, p.count, p.rows, *s.begins);
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
