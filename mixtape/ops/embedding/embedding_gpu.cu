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

// kRowsOfWarp rows of the table per warp, in one pass: zeros where no id is, or left alone.
template <class T, int N>
MIXTAPE_DEVICE void embedding_backward(const EmbeddingParams& p, Global<const T> dy,
                                       Global<const std::uint32_t> places, Global<const float> sums,
                                       std::int64_t begin, std::int64_t end, Global<T> row) {
  constexpr int kPacks = kPacksOfLane;
  constexpr std::int64_t kStep = kLanes * N;
  for (std::int64_t c0 = block_y() * kPacks * kStep; c0 < p.hidden; c0 += blocks_y() * kPacks * kStep) {
    const std::int64_t c = c0 + lane() * N;
    float sum[kPacks * N];
    segment_sum<T, kPacks, N>(dy, p.hidden, places, sums, begin, end, c, kStep, sum);
    MIXTAPE_UNROLL
    for (int k = 0; k < kPacks; ++k) {
      if (c + k * kStep >= p.hidden) break;
      Pack<T, N> out;
      if (p.accumulate != 0) out = load_pack<N>(row + (c + k * kStep));
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i)
        out.v[i] = from_f32<T>(p.accumulate != 0 ? to_f32(out.v[i]) + sum[k * N + i] : sum[k * N + i]);
      store_pack(row + (c + k * kStep), out);
    }
  }
}
template <class T, int N>
MIXTAPE_DEVICE void embedding_backward_rows(const EmbeddingParams& p, Global<const T> dy,
                                            Global<const std::uint32_t> places,
                                            Global<const std::uint32_t> begins, Global<const float> sums,
                                            Global<T> dtable) {
  const std::int64_t first = row_index() * kRowsOfWarp;
  if (first >= p.rows) return;
  const std::int64_t known = first + lane() < p.rows ? first + lane() : p.rows;
  const std::uint32_t my_begin = begins[known];
  MIXTAPE_ROLLED
  for (int r = 0; r < kRowsOfWarp && first + r < p.rows; ++r) {
    const std::int64_t begin = lane_shuffle(my_begin, r), end = lane_shuffle(my_begin, r + 1);
    if (begin == end && p.accumulate != 0) continue;
    const Global<T> row = dtable + row_offset(first + r, p.hidden);
    embedding_backward<T, N>(p, dy, places, sums, begin, end, row);
  }
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
