#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/ops/embedding/segments_gpu.h"

namespace mixtape {

// A row per warp, four packs of each lane at a time; block_y shares out a long row.
template <class T, int N>
MIXTAPE_DEVICE void copy_row(Global<const T> from, Global<T> to, std::int64_t hidden) {
  constexpr int kPacks = 4;
  constexpr std::int64_t kStep = kLanes * N;
  for (std::int64_t c = block_y() * kPacks * kStep + lane() * N; c < hidden;
       c += blocks_y() * kPacks * kStep) {
    Pack<T, N> held[kPacks];
    load_row<T, kPacks, N>(held, from, c, kStep, hidden);
    MIXTAPE_UNROLL
    for (int p = 0; p < kPacks; ++p)
      if (c + p * kStep < hidden) store_pack(to + (c + p * kStep), held[p]);
  }
}
template <class T>
MIXTAPE_DEVICE void zero_part(Global<T> to, std::int64_t hidden) {
  const std::int64_t step = static_cast<std::int64_t>(blocks_y()) * kLanes;
  for (std::int64_t c = block_y() * kLanes + lane(); c < hidden; c += step) to[c] = from_f32<T>(0.0f);
}

template <class T>
MIXTAPE_DEVICE void embedding_forward(const EmbeddingParams& p, Global<const T> table,
                                      Global<const std::uint32_t> ids, Global<T> y,
                                      Global<std::uint64_t> errors) {
  constexpr int kPack = 16 / sizeof(T);
  const std::int64_t b = row_index();
  if (b >= p.count) return;
  const std::uint32_t bits = ids[b];
  const std::int64_t id = index_value(bits, p.ids_are_signed != 0);
  const Global<T> to = y + row_offset(b, p.hidden);
  if (id < 0 || id >= p.rows) {
    if (lane() == 0 && block_y() == 0) report_index(errors, b, bits);
    return zero_part(to, p.hidden);
  }
  const Global<const T> from = table + row_offset(id, p.hidden);
  if (p.hidden % kPack == 0 && is_aligned(table, 16) && is_aligned(y, 16)) {
    copy_row<T, kPack>(from, to, p.hidden);
  } else {
    copy_row<T, 1>(from, to, p.hidden);
  }
}
#define FORWARD(T)                                                                             \
  MIXTAPE_KERNEL(embedding_forward_##T, 256, EmbeddingParams p, Global<const T> table,         \
                 Global<const std::uint32_t> ids, Global<T> y, Global<std::uint64_t> errors) { \
    await_earlier();                                                                           \
    embedding_forward<T>(p, table, ids, y, errors);                                            \
  }
MIXTAPE_VALUE_KERNELS(FORWARD)

// The segment that the last of the kSegmentBlock sorted places from block_x * kSegmentBlock on belongs to,
// and its full block that reaches this place: the only full block that begins among them.
struct FullBlock {
  bool exists;
  std::int64_t begin, end;  // of the segment
  std::int64_t first;       // of the block
};
MIXTAPE_DEVICE FullBlock full_block(const EmbeddingParams& p, Global<const std::uint32_t> keys,
                                    Global<const std::uint32_t> begins) {
  const std::int64_t last = (block_x() + std::int64_t{1}) * kSegmentBlock - 1;
  const std::int64_t id = keys[last];
  if (id >= p.rows) return {false, 0, 0, 0};
  const std::int64_t begin = begins[id], end = begins[id + 1];
  const std::int64_t first = begin + (last - begin) / kSegmentBlock * kSegmentBlock;
  return {first + kSegmentBlock <= end, begin, end, first};
}

// The sum of a full block, left to right. Eight rows are under way at a time: the lane_barrier keeps the
// compiler from reading them one by one.
template <class T, int N>
MIXTAPE_DEVICE void embedding_blocks(const EmbeddingParams& p, Global<const T> dy,
                                     Global<const std::uint32_t> places, std::int64_t first,
                                     Global<float> sum) {
  constexpr int kRows = 8;
  const std::int64_t first_of_warp = (block_y() * threads_x() + warp() * kLanes) * std::int64_t{N};
  const std::int64_t step = static_cast<std::int64_t>(blocks_y()) * threads_x() * N;
  for (std::int64_t c0 = first_of_warp; c0 < p.hidden; c0 += step) {
    const std::int64_t c = c0 + lane() * N;
    const bool is_inside = c < p.hidden;
    std::uint32_t my_place = 0;
    Pack<float, N> total;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) total.v[i] = 0.0f;
    for (int done = 0; done < kSegmentBlock; done += kRows) {
      if (done % kLanes == 0) my_place = places[first + done + lane()];
      Pack<T, N> rows[kRows];
      MIXTAPE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::int64_t row = lane_shuffle(my_place, done % kLanes + r);
        if (is_inside) rows[r] = load_pack<N>(dy + (row_offset(row, p.hidden) + c));
      }
      lane_barrier();
      MIXTAPE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        MIXTAPE_UNROLL
        for (int i = 0; i < N; ++i) total.v[i] += is_inside ? to_f32(rows[r].v[i]) : 0.0f;
      }
    }
    if (is_inside) store_pack(sum + c, total);
  }
}
#define BLOCKS_OF(T, N, name)                                                               \
  MIXTAPE_KERNEL(embedding_blocks_##T##name, 256, EmbeddingParams p, Global<const T> dy,    \
                 Global<const std::uint32_t> keys, Global<const std::uint32_t> places,      \
                 Global<const std::uint32_t> begins, Global<float> sums) {                  \
    await_earlier();                                                                        \
    const FullBlock b = full_block(p, keys, begins);                                        \
    if (!b.exists) return;                                                                  \
    embedding_blocks<T, N>(p, dy, places, b.first, sums + row_offset(block_x(), p.hidden)); \
  }
#define BLOCKS(T)                      \
  BLOCKS_OF(T, 16 / sizeof(T), _packs) \
  BLOCKS_OF(T, 1, _any)
MIXTAPE_VALUE_KERNELS(BLOCKS)

// The sums of a segment's full blocks, left to right, into the first's row.
MIXTAPE_KERNEL(embedding_add_blocks, 256, EmbeddingParams p, Global<const std::uint32_t> keys,
               Global<const std::uint32_t> begins, Global<float> sums) {
  await_earlier();
  constexpr int kRows = 16;
  const FullBlock b = full_block(p, keys, begins);
  const std::int64_t blocks = (b.end - b.begin) / kSegmentBlock;
  if (!b.exists || b.first != b.begin || blocks < 2) return;
  const Global<float> own = sums + row_offset(block_x(), p.hidden);
  const std::int64_t step = static_cast<std::int64_t>(blocks_y()) * threads_x();
  for (std::int64_t c = block_y() * threads_x() + thread_x(); c < p.hidden; c += step) {
    float total = own[c];
    for (std::int64_t done = 1; done < blocks; done += kRows) {
      float rows[kRows];
      MIXTAPE_UNROLL
      for (int r = 0; r < kRows; ++r)
        rows[r] = done + r < blocks ? static_cast<float>(own[(done + r) * p.hidden + c]) : 0.0f;
      MIXTAPE_UNROLL
      for (int r = 0; r < kRows; ++r) total += rows[r];
    }
    own[c] = total;
  }
}

// Neighbouring rows of the table that a warp writes: lane r knows the segment of the r-th.
struct WarpSegments {
  std::int64_t first;
  int rows;
  std::uint32_t begin, count;
  std::uint32_t full;   // of the occurrences those in full blocks, which come first
  std::uint32_t up_to;  // others, of the rows up to this one
  int total;            // others, of all rows

  MIXTAPE_DEVICE WarpSegments(const EmbeddingParams& p, Global<const std::uint32_t> begins, std::int64_t row)
      : first(row), rows(row + kTableRows <= p.rows ? kTableRows : static_cast<int>(p.rows - row)) {
    begin = begins[first + (lane() < rows ? lane() : rows)];
    count = lane_shuffle(begin, lane() < rows ? lane() + 1 : rows) - begin;
    full = static_cast<std::uint32_t>(count / kSegmentBlock * kSegmentBlock);
    up_to = lanes_up_to(count - full);
    total = static_cast<int>(lane_shuffle(up_to, kLanes - 1));
  }
  // Of this lane's occurrence, the i-th that is in no full block: its row, and its place in the sorted order.
  MIXTAPE_DEVICE int row_of(int i) const {
    int row = 0;
    MIXTAPE_ROLLED
    for (int r = 0; r < rows; ++r) row += i >= static_cast<int>(lane_shuffle(up_to, r)) ? 1 : 0;
    return row;
  }
  MIXTAPE_DEVICE std::uint32_t place_of(int i, int row) const {
    return lane_shuffle(begin + count - up_to, row) + static_cast<std::uint32_t>(i);
  }
};

// The columns c .. c+N-1 of a warp's rows, in one pass: what stands in no full block is summed as it comes, four rows
// of dy under way at a time (the lane_barrier keeps the compiler from reading them one by one), and a sum is written
// where the next row begins. Zeros where no id is, or left alone.
template <class T, int N>
MIXTAPE_DEVICE void embedding_backward(const EmbeddingParams& p, const WarpSegments& segments,
                                       Global<const T> dy, Global<const std::uint32_t> places,
                                       Global<const float> sums, Global<T> dtable, std::int64_t c) {
  constexpr int kAtOnce = 4;
  const bool is_inside = c < p.hidden;
  float sum[N];
  MIXTAPE_UNROLL
  for (int i = 0; i < N; ++i) sum[i] = 0.0f;
  int row = 0;
  const auto put_row = [&] {
    const std::uint32_t count = lane_shuffle(segments.count, row), full = lane_shuffle(segments.full, row);
    const std::int64_t block = lane_shuffle(segments.begin, row) / kSegmentBlock;
    const Global<T> to = dtable + (row_offset(segments.first + row, p.hidden) + c);
    ++row;
    if (!is_inside || (count == 0 && p.accumulate != 0)) return;
    Pack<float, N> in_full;
    if (full != 0) in_full = load_pack<N>(sums + (row_offset(block, p.hidden) + c));
    Pack<T, N> out;
    if (p.accumulate != 0) out = load_pack<N>(to);
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) {
      if (full != 0) sum[i] += in_full.v[i];
      out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + sum[i] : sum[i]);
      sum[i] = 0.0f;
    }
    store_pack(to, out);
  };
  int my_row = 0;
  std::uint32_t my_place = 0;
  MIXTAPE_ROLLED
  for (int i = 0; i < segments.total; i += kAtOnce) {
    if (i % kLanes == 0) {
      my_row = segments.row_of(i + lane());
      const std::uint32_t at = segments.place_of(i + lane(), my_row);
      if (i + lane() < segments.total) my_place = places[at];
    }
    Pack<T, N> held[kAtOnce];
    MIXTAPE_UNROLL
    for (int r = 0; r < kAtOnce; ++r) {
      const std::int64_t place = lane_shuffle(my_place, (i + r) % kLanes);
      if (i + r < segments.total && is_inside) held[r] = load_pack<N>(dy + (row_offset(place, p.hidden) + c));
    }
    lane_barrier();
    MIXTAPE_UNROLL
    for (int r = 0; r < kAtOnce; ++r) {
      const int row_of_r = lane_shuffle(my_row, (i + r) % kLanes);
      if (i + r >= segments.total) break;
      MIXTAPE_ROLLED
      while (row < row_of_r) put_row();
      MIXTAPE_UNROLL
      for (int k = 0; k < N; ++k) sum[k] += is_inside ? to_f32(held[r].v[k]) : 0.0f;
    }
  }
  MIXTAPE_ROLLED
  while (row < segments.rows) put_row();
}
// Warps beside each other take the parts of the same rows: what they write are whole rows of memory.
template <class T, int N>
MIXTAPE_DEVICE void embedding_backward_rows(const EmbeddingParams& p, Global<const T> dy,
                                            Global<const std::uint32_t> places,
                                            Global<const std::uint32_t> begins, Global<const float> sums,
                                            Global<T> dtable) {
  constexpr int kCols = kLanes * N;
  const std::int64_t parts = (p.hidden + kCols - 1) / kCols, group = divide(row_index(), parts);
  if (group * kTableRows >= p.rows) return;
  const std::int64_t part = row_index() - group * parts;
  embedding_backward<T, N>(p, WarpSegments(p, begins, group * kTableRows), dy, places, sums, dtable,
                           part * kCols + lane() * N);
}
#define BACKWARD_OF(T, N, name)                                                            \
  MIXTAPE_KERNEL(embedding_backward_##T##name, 256, EmbeddingParams p, Global<const T> dy, \
                 Global<const std::uint32_t> places, Global<const std::uint32_t> begins,   \
                 Global<const float> sums, Global<T> dtable) {                             \
    await_earlier();                                                                       \
    embedding_backward_rows<T, N>(p, dy, places, begins, sums, dtable);                    \
  }
#define BACKWARD(T)                      \
  BACKWARD_OF(T, 16 / sizeof(T), _packs) \
  BACKWARD_OF(T, 1, _any)
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
