// Sums of gradient rows by id inside GPU kernels: embedding's own and those of tables stored otherwise.
// `places` lists the rows of dy by id, those of one id in order; id's are places[begins[id] .. begins[id+1]).
// Full blocks of kSegmentBlock occurrences come summed in `sums`: those of one id added up, in the row
// begins[id] / kSegmentBlock (embedding_gpu.h makes all this).
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/embedding/embedding_params.h"

namespace mixtape {

// sum[p*N + i] += dy[row, columns + p*step + i], as far as the row goes.
template <class T, int Packs, int N>
MIXTAPE_DEVICE void add_row(float* sum, const Pack<T, N>* row, std::int64_t columns, std::int64_t step,
                            std::int64_t hidden) {
  MIXTAPE_UNROLL
  for (int p = 0; p < Packs; ++p) {
    if (columns + p * step >= hidden) break;
    MIXTAPE_UNROLL
    for (int i = 0; i < N; ++i) sum[p * N + i] += to_f32(row[p].v[i]);
  }
}
template <class T, int Packs, int N>
MIXTAPE_DEVICE void load_row(Pack<T, N>* row, Global<const T> from, std::int64_t columns, std::int64_t step,
                             std::int64_t hidden) {
  MIXTAPE_UNROLL
  for (int p = 0; p < Packs; ++p) {
    if (columns + p * step < hidden) row[p] = load_pack<N>(from + (columns + p * step));
  }
}

// The sum over an id's occurrences [begin, end) in the contract's order, for the columns of this thread:
// Packs packs of N from `columns` on, `step` apart. The whole warp sums the same id. Two rows are under way
// at a time: the lane_barrier keeps the compiler from reading them one by one.
template <class T, int Packs, int N>
MIXTAPE_DEVICE void segment_sum(Global<const T> dy, std::int64_t hidden, Global<const std::uint32_t> places,
                                Global<const float> sums, std::int64_t begin, std::int64_t end,
                                std::int64_t columns, std::int64_t step, float* sum) {
  MIXTAPE_UNROLL
  for (int i = 0; i < Packs * N; ++i) sum[i] = 0.0f;
  const std::int64_t in_full_blocks = (end - begin) / kSegmentBlock * kSegmentBlock;
  Pack<T, N> a[Packs], b[Packs];
  MIXTAPE_ROLLED
  for (std::int64_t i = begin + in_full_blocks; i < end; i += 2) {
    const bool is_pair = i + 1 < end;
    const std::int64_t first = places[i], second = places[is_pair ? i + 1 : i];
    load_row<T, Packs, N>(a, dy + row_offset(first, hidden), columns, step, hidden);
    if (is_pair) load_row<T, Packs, N>(b, dy + row_offset(second, hidden), columns, step, hidden);
    lane_barrier();
    add_row<T, Packs, N>(sum, a, columns, step, hidden);
    if (is_pair) add_row<T, Packs, N>(sum, b, columns, step, hidden);
  }
  if (in_full_blocks == 0) return;
  Pack<float, N> full[Packs];
  load_row<float, Packs, N>(full, sums + row_offset(begin / kSegmentBlock, hidden), columns, step, hidden);
  add_row<float, Packs, N>(sum, full, columns, step, hidden);
}

}  // namespace mixtape
