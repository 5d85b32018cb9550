// Which kernel runs:
//   layout_runs_*   parts along an axis: runs of equal length at equal distances (slice, concat, repeat)
//   layout_put_*    the same, to where a buffer says
//   permute_*       the last axis stays the last: whole units move
//   permute_turn_*  another axis becomes the last, or the last repeats: tiles go through shared memory, so
//                   that both sides are read and written along their rows
// A unit is what moves at once: the most of 16, 4, 2 and 1 bytes that all sizes, strides and addresses are
// multiples of; with `add_<dtype>`, which adds to what is there, 16 bytes (`_packs`) or one element.
#include <algorithm>
#include <numeric>

#include "mixtape/backend/gpu/rows.h"
#include "mixtape/ops/layout/layout_gpu_params.h"

namespace mixtape::gpu {
namespace {

std::int64_t element_bytes(const Call& call) { return static_cast<std::int64_t>(size_of(call.dtype(0))); }

// The most elements that can be moved at once, if all counts and strides in `common` (their greatest common
// divisor, in elements) are whole units; and the kernel for it.
struct Units {
  std::int64_t elements;
  std::string kernel;
};

Units units(const Call& call, const std::string& stem, Accumulate accumulate, std::int64_t common) {
  const std::int64_t bytes = element_bytes(call);
  const auto offsets = static_cast<std::int64_t>(call.read(0).byte_offset() | call.write(0).byte_offset());
  const std::int64_t unit = std::gcd(std::gcd(common * bytes, offsets), 16);
  if (accumulate == Accumulate::yes) {
    const std::string name = str(stem, "add_", call.write(0).dtype());
    return unit == 16 ? Units{16 / bytes, name + "_packs"} : Units{1, name};
  }
  const std::int64_t moved = unit == 8 ? 4 : unit;
  return {moved / bytes, str(stem, moved, "_bytes")};
}

Grid grid_for_units(std::int64_t count) { return grid_for(count, kLayoutUnits); }

void runs(const Call& call, Accumulate accumulate) {
  auto p = call.params<RunsParams>();
  if (p.from_stride == p.length && p.to_stride == p.length) {
    p.length *= p.count;
    p.count = 1;
  }
  if (p.count == 1) p.from_stride = p.to_stride = 0;
  std::int64_t common = 0;
  for (const std::int64_t n : {p.length, p.from_offset, p.from_stride, p.to_offset, p.to_stride})
    common = std::gcd(common, n);
  const Units u = units(call, "layout_runs_", accumulate, common);
  for (std::int64_t* n : {&p.length, &p.from_offset, &p.from_stride, &p.to_offset, &p.to_stride})
    *n /= u.elements;
  call.launch(u.kernel, grid_for_units(p.count * p.length), kBlock256, p, {call.read(0), call.write(0)});
}

void put(const Call& call) {
  auto p = call.params<PutParams>();
  const Argument errors = call.index_errors(p.starts, false);
  std::int64_t common = 0;
  for (const std::int64_t n : {p.runs.length, p.runs.from_stride, p.runs.to_stride, p.step})
    common = std::gcd(common, n);
  const Units u = units(call, "layout_put_", Accumulate::no, common);
  for (std::int64_t* n : {&p.runs.length, &p.runs.from_stride, &p.runs.to_stride, &p.step}) *n /= u.elements;
  call.launch(u.kernel, grid_for(p.runs.count * p.runs.length), kBlock256, p,
              {call.read(0), call.read(1), call.write(0), errors});
}

// The last axis stays the last: whole units move.
void permute_units(const Call& call, PermuteParams p, Accumulate accumulate) {
  const std::int64_t last = p.rank - 1;
  std::int64_t common = p.dims[last], count = 1;
  for (std::int64_t a = 0; a < last; ++a) common = std::gcd(common, p.strides[a]);
  const Units u = units(call, "permute_", accumulate, common);
  p.dims[last] /= u.elements;
  for (std::int64_t a = 0; a < last; ++a) p.strides[a] /= u.elements;
  for (std::int64_t a = 0; a < p.rank; ++a) count *= p.dims[a];
  call.launch(u.kernel, grid_for_units(count), kBlock256, p, {call.read(0), call.write(0)});
}

// Axis q is x's last: it and y's last turn over.
TurnParams turn_params(const PermuteParams& p, std::int64_t q, std::int64_t bytes) {
  const std::int64_t last = p.rank - 1, tile = turn_tile(static_cast<int>(bytes));
  TurnParams t{};
  t.rows = p.dims[q];
  t.cols = p.dims[last];
  t.x_stride = p.strides[last];
  t.row_tiles = ceil_div(t.rows, tile);
  t.col_tiles = ceil_div(t.cols, tile);
  std::int64_t y_stride = t.cols;
  for (std::int64_t a = last - 1; a >= 0; --a) {
    if (a == q) {
      t.y_stride = y_stride;
    } else {
      t.dims[t.rank] = p.dims[a];
      t.x_strides[t.rank] = p.strides[a];
      t.y_strides[t.rank++] = y_stride;
    }
    y_stride *= p.dims[a];
  }
  return t;
}

void permute(const Call& call, Accumulate accumulate) {
  const auto& p = call.params<PermuteParams>();
  const std::int64_t q = std::find(p.strides, p.strides + p.rank, 1) - p.strides;
  if (q == p.rank - 1) return permute_units(call, p, accumulate);
  const TurnParams t = turn_params(p, q, element_bytes(call));
  std::int64_t tiles = t.row_tiles * t.col_tiles;
  for (std::int64_t a = 0; a < t.rank; ++a) tiles *= t.dims[a];
  const std::string kernel = accumulate == Accumulate::yes
                                 ? str("permute_turn_add_", call.write(0).dtype())
                                 : str("permute_turn_", element_bytes(call), "_bytes");
  call.launch(kernel, grid_of(tiles), {32, 8, 1}, t, {call.read(0), call.write(0)});
}

void repeat_backward(const Call& call) {
  const auto& p = call.params<RepeatParams>();
  const std::int64_t bytes = element_bytes(call);
  const bool is_packed = p.cols * bytes % 16 == 0 && call.read(0).byte_offset() % 16 == 0 &&
                         call.write(0).byte_offset() % 16 == 0;
  call.launch(call.dispatch.kernel + (is_packed ? "_packs" : "_ones"),
              grid_for(p.rows * p.cols, is_packed ? 16 / bytes : 1), kBlock256, p,
              {call.read(0), call.write(0)});
}

void add_runs(const Call& call) { runs(call, Accumulate::yes); }
void move_runs(const Call& call) { runs(call, Accumulate::no); }
void add_permuted(const Call& call) { permute(call, Accumulate::yes); }
void move_permuted(const Call& call) { permute(call, Accumulate::no); }

#define MOVES(PREFIX, MOVE, ADD)                \
  MIXTAPE_GPU_LAUNCHER(PREFIX "1_bytes", MOVE); \
  MIXTAPE_GPU_LAUNCHER(PREFIX "2_bytes", MOVE); \
  MIXTAPE_GPU_LAUNCHER(PREFIX "4_bytes", MOVE); \
  MIXTAPE_GPU_LAUNCHERS(PREFIX "add_", ADD)
MOVES("layout_runs_", move_runs, add_runs);
MOVES("permute_", move_permuted, add_permuted);
MIXTAPE_GPU_LAUNCHER("layout_put_1_bytes", put);
MIXTAPE_GPU_LAUNCHER("layout_put_2_bytes", put);
MIXTAPE_GPU_LAUNCHER("layout_put_4_bytes", put);
MIXTAPE_GPU_LAUNCHERS("repeat_backward_", repeat_backward);

}  // namespace
}  // namespace mixtape::gpu
