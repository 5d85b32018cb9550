#include "mixtape/backend/gpu/ranking.h"
#include "mixtape/core/mix.h"
#include "mixtape/ops/sampling/sampling_gpu_params.h"

namespace mixtape {

// Whole warps. Sum and maximum over the block, the same in every thread; scratch holds 32 words, what was in
// it before must have been read by all.
MIXTAPE_DEVICE std::uint64_t lane_sum_u64(std::uint64_t v) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) v += lane_xor(v, mask);
  return v;
}
MIXTAPE_DEVICE std::uint64_t lane_max_u64(std::uint64_t v) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    const std::uint64_t other = lane_xor(v, mask);
    v = v > other ? v : other;
  }
  return v;
}
MIXTAPE_DEVICE std::uint64_t block_sum_u64(std::uint64_t v, Shared<std::uint64_t> scratch) {
  v = lane_sum_u64(v);
  if (lane() == 0) scratch[warp()] = v;
  barrier();
  const std::uint64_t part =
      lane() < block_threads() / kLanes ? static_cast<std::uint64_t>(scratch[lane()]) : 0u;
  barrier();
  return lane_sum_u64(part);
}
MIXTAPE_DEVICE std::uint64_t block_max_u64(std::uint64_t v, Shared<std::uint64_t> scratch) {
  v = lane_max_u64(v);
  if (lane() == 0) scratch[warp()] = v;
  barrier();
  const std::uint64_t part =
      lane() < block_threads() / kLanes ? static_cast<std::uint64_t>(scratch[lane()]) : 0u;
  barrier();
  return lane_max_u64(part);
}

// The largest by key, the lowest column of equal ones; threads `step` apart share the row.
template <class T>
MIXTAPE_DEVICE std::uint64_t largest_entry(Global<const T> row, std::int64_t cols, int first, int step) {
  std::uint64_t best = 0;
  MIXTAPE_UNROLL_4
  for (std::int64_t c = first; c < cols; c += step) {
    const std::uint64_t entry = static_cast<std::uint64_t>(order_key(to_f32(row[c]))) << 32 |
                                (0xffffffffu - static_cast<std::uint32_t>(c));
    best = entry > best ? entry : best;
  }
  return best;
}
MIXTAPE_DEVICE std::uint32_t column_of(std::uint64_t entry) {
  return 0xffffffffu - static_cast<std::uint32_t>(entry);
}

// A row per warp, or per block where a block has one row of threads.
template <class T>
MIXTAPE_DEVICE void argmax_forward(const SamplingParams& p, Global<const T> x, Global<std::uint32_t> indices,
                                   Shared<std::uint64_t> scratch) {
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const std::uint64_t mine = largest_entry<T>(x + row * p.cols, p.cols, thread_x(), threads_x());
  const std::uint64_t best = threads_x() > kLanes ? block_max_u64(mine, scratch) : lane_max_u64(mine);
  if (thread_x() == 0) indices[row] = column_of(best);
}
#define ARGMAX(T)                                                               \
  MIXTAPE_KERNEL(argmax_forward_##T, 1024, SamplingParams p, Global<const T> x, \
                 Global<std::uint32_t> indices) {                               \
    await_earlier();                                                            \
    MIXTAPE_SHARED(std::uint64_t, scratch, kLanes);                             \
    argmax_forward<T>(p, x, indices, scratch);                                  \
  }
MIXTAPE_VALUE_KERNELS(ARGMAX)

template <class T>
struct DrawRow {
  Global<const T> x;
  std::int64_t cols;
  float max, factor;

  MIXTAPE_DEVICE std::uint32_t steps(std::int64_t c) const {
    const float v = to_f32(x[c]);
    return v == max ? 0u : draw_steps((max - v) * factor);
  }
  // Of those with at most `last` steps.
  MIXTAPE_DEVICE std::uint64_t weight(std::int64_t c, std::uint32_t last) const {
    const std::uint32_t s = steps(c);
    return s <= last ? draw_weight(s) : 0u;
  }
};

// What top_p weighs: of entries with at most `most` steps.
struct WeightUpTo {
  std::uint32_t most;
  MIXTAPE_DEVICE std::uint64_t operator()(std::uint32_t steps) const {
    return steps <= most ? draw_weight(steps) : 0u;
  }
};
// What top_k counts.
struct One {
  MIXTAPE_DEVICE std::uint64_t operator()(std::uint32_t) const { return 1u; }
};

// Two bits at a time: the largest number of steps such that the entries with fewer don't reach `wanted`, 1 or more, by
// their measure.
template <class T, class Measure>
MIXTAPE_DEVICE std::uint32_t last_steps(const DrawRow<T>& row, const Measure& measure, std::uint64_t wanted,
                                        Shared<std::uint64_t> scratch) {
  std::uint32_t found = 0;
  MIXTAPE_ROLLED
  for (int shift = 30; shift >= 0; shift -= 2) {
    const std::uint32_t quarter = 1u << shift;
    std::uint64_t below1 = 0, below2 = 0, below3 = 0;
    MIXTAPE_UNROLL_4
    for (std::int64_t c = thread_x(); c < row.cols; c += threads_x()) {
      const std::uint32_t s = row.steps(c);
      const std::uint64_t w = measure(s);
      below1 += s < found + quarter ? w : 0u;
      below2 += s < found + 2 * quarter ? w : 0u;
      below3 += s < found + 3 * quarter ? w : 0u;
    }
    below1 = block_sum_u64(below1, scratch);
    below2 = block_sum_u64(below2, scratch);
    below3 = block_sum_u64(below3, scratch);
    found += below3 < wanted ? 3 * quarter : below2 < wanted ? 2 * quarter : below1 < wanted ? quarter : 0u;
  }
  return found;
}

// The steps of the last entry that takes part.
template <class T>
MIXTAPE_DEVICE std::uint32_t last_of(const DrawRow<T>& row, const SamplingParams& p,
                                     Shared<std::uint64_t> scratch) {
  std::uint32_t last = static_cast<std::uint32_t>(p.most_steps);
  if (p.top_k != 0) {
    const std::uint32_t kth = last_steps(row, One{}, p.top_k, scratch);
    last = kth < last ? kth : last;
  }
  if (p.cuts_tail == 0) return last;
  std::uint64_t all = 0;
  for (std::int64_t c = thread_x(); c < row.cols; c += threads_x()) all += row.weight(c, last);
  const std::uint64_t wanted = multiply_high(block_sum_u64(all, scratch), p.top_p);
  return last_steps(row, WeightUpTo{last}, wanted == 0 ? 1u : wanted, scratch);
}

// The sum of v over the lanes before this one.
MIXTAPE_DEVICE std::uint64_t lanes_before(std::uint64_t v) {
  std::uint64_t up_to = v;
  for (int step = 1; step < kLanes; step *= 2) {
    const std::uint64_t below = lane_shuffle(up_to, lane() >= step ? lane() - step : lane());
    if (lane() >= step) up_to += below;
  }
  return up_to - v;
}

// The column at which the weights pass `left`. Called by one warp; sums holds the tiles' weights.
template <class T>
MIXTAPE_DEVICE std::uint32_t find_column(const DrawRow<T>& row, std::uint32_t last, std::int64_t tile_cols,
                                         Shared<std::uint64_t> sums, std::uint64_t random) {
  constexpr int kShare = kDrawTiles / kLanes;  // tiles of a lane
  std::uint64_t mine = 0;
  for (int t = 0; t < kShare; ++t) mine += sums[lane() * kShare + t];
  std::uint64_t before = lanes_before(mine);
  const std::uint64_t left = multiply_high(lane_sum_u64(mine), random);
  const int owner = lowest_bit(lane_ballot(before <= left && left < before + mine));
  int tile = lane() * kShare;
  if (lane() == owner) {
    for (; before + sums[tile] <= left; ++tile) before += sums[tile];
  }
  tile = lane_shuffle(tile, owner);
  std::uint64_t reached = lane_shuffle(before, owner);
  for (std::int64_t first = tile * tile_cols; first < row.cols; first += kLanes) {
    const std::int64_t c = first + lane();
    const std::uint64_t w = c < row.cols ? row.weight(c, last) : 0u;
    const std::uint64_t here = reached + lanes_before(w);
    const std::uint32_t hit = lane_ballot(here <= left && left < here + w);
    if (hit != 0) return static_cast<std::uint32_t>(first + lowest_bit(hit));
    reached += lane_sum_u64(w);
  }
  return 0;
}

// A row per block: its largest, the steps that take part, the weights of its tiles, the column.
template <class T>
MIXTAPE_DEVICE void sample_forward(const SamplingParams& p, Global<const T> x, Global<std::uint32_t> indices,
                                   Shared<std::uint64_t> sums, Shared<std::uint64_t> scratch) {
  const std::int64_t r = block_x();
  const Global<const T> in = x + r * p.cols;
  const std::uint32_t place =
      column_of(block_max_u64(largest_entry<T>(in, p.cols, thread_x(), threads_x()), scratch));
  const DrawRow<T> row{in, p.cols, to_f32(in[place]), p.factor};
  if (row.max != row.max) {
    if (thread_x() == 0) indices[r] = place;
    return;
  }
  const std::uint32_t last = last_of(row, p, scratch);
  const std::int64_t tile_cols = (p.cols + kDrawTiles * kLanes - 1) / (kDrawTiles * kLanes) * kLanes;
  const int tiles = static_cast<int>((p.cols + tile_cols - 1) / tile_cols);
  for (int tile = tiles + thread_x(); tile < kDrawTiles; tile += threads_x()) sums[tile] = 0;
  for (int tile = warp(); tile < tiles; tile += block_threads() / kLanes) {
    const std::int64_t begin = tile * tile_cols;
    const std::int64_t end = begin + tile_cols < p.cols ? begin + tile_cols : p.cols;
    std::uint64_t sum = 0;
    MIXTAPE_UNROLL_4
    for (std::int64_t c = begin + lane(); c < end; c += kLanes) sum += row.weight(c, last);
    sum = lane_sum_u64(sum);
    if (lane() == 0) sums[tile] = sum;
  }
  barrier();
  if (warp() != 0) return;
  const std::uint64_t random = mix_bits(p.seed + (static_cast<std::uint64_t>(r) << 32) + p.step);
  const std::uint32_t column = find_column(row, last, tile_cols, sums, random);
  if (lane() == 0) indices[r] = column;
}
#define SAMPLE(T)                                                               \
  MIXTAPE_KERNEL(sample_forward_##T, 1024, SamplingParams p, Global<const T> x, \
                 Global<std::uint32_t> indices) {                               \
    await_earlier();                                                            \
    MIXTAPE_SHARED(std::uint64_t, sums, kDrawTiles);                            \
    MIXTAPE_SHARED(std::uint64_t, scratch, kLanes);                             \
    sample_forward<T>(p, x, indices, sums, scratch);                            \
  }
MIXTAPE_VALUE_KERNELS(SAMPLE)

}  // namespace mixtape
