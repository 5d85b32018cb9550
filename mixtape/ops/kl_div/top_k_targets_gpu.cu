// The k largest entries of each row, without sorting it: the k-th largest of the maxima of several thousand
// groups is a bound that at least k entries reach, and few more. Those are collected, and the exact k found
// among them by their keys' bits; among the whole row where they are too many. A block per row.
#include "mixtape/backend/gpu/kernel_language.h"
#include "mixtape/ops/kl_div/chosen_gpu.h"
#include "mixtape/ops/kl_div/kl_div_params.h"

namespace mixtape {

constexpr int kGroupsPerThread = 8;
constexpr int kCandidates = 3584;
// Packs of N elements that a thread holds: at least an element per group.
constexpr int target_packs(int n) { return n < 4 ? kGroupsPerThread / n : 2; }

// Over the block, the same in every thread; scratch as block_sum's.
MIXTAPE_DEVICE std::uint32_t block_count(std::uint32_t v, Shared<std::uint32_t> scratch) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) v += lane_xor(v, mask);
  if (lane() == 0) scratch[warp()] = v;
  barrier();
  const int warps = (block_threads() + kLanes - 1) / kLanes;
  v = lane() < warps ? static_cast<std::uint32_t>(scratch[lane()]) : 0u;
  for (int mask = kLanes / 2; mask > 0; mask /= 2) v += lane_xor(v, mask);
  barrier();
  return v;
}
// The sum over the threads before this one; `total` over all.
MIXTAPE_DEVICE std::uint32_t count_before(std::uint32_t v, std::uint32_t& total,
                                          Shared<std::uint32_t> scratch) {
  std::uint32_t upto = v;
  for (int step = 1; step < kLanes; step *= 2) {
    const std::uint32_t other = lane_shuffle(upto, lane() >= step ? lane() - step : lane());
    if (lane() >= step) upto += other;
  }
  if (lane() == kLanes - 1) scratch[warp()] = upto;
  barrier();
  std::uint32_t before = 0;
  total = 0;
  for (int w = 0; w < block_threads() / kLanes; ++w) {
    const std::uint32_t sum = scratch[w];
    if (w < warp()) before += sum;
    total += sum;
  }
  barrier();
  return before + upto - v;
}

// Each thread's maxima over every eighth of its elements.
template <int N, class T>
MIXTAPE_DEVICE void group_maxima(Global<const T> row, std::int64_t cols, float (&maxima)[kGroupsPerThread]) {
  MIXTAPE_UNROLL
  for (int g = 0; g < kGroupsPerThread; ++g) maxima[g] = minus_infinity();
  constexpr int kPacks = target_packs(N);
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  for (std::int64_t at = static_cast<std::int64_t>(thread_x()) * N; at < cols; at += kPacks * step) {
    Run<T, N, kPacks> run;
    load_run(row, at, step, cols, run);
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) {
        float& max = maxima[(h * N + i) % kGroupsPerThread];
        max = max_nan(max, to_f32(run.packs[h].v[i]));
      }
    }
  }
}

// The k-th largest key of the block's maxima; 0 where there are fewer.
MIXTAPE_DEVICE std::uint32_t bound_of(const float (&maxima)[kGroupsPerThread], std::int64_t k,
                                      Shared<std::uint32_t> scratch) {
  std::uint32_t keys[kGroupsPerThread];
  MIXTAPE_UNROLL
  for (int g = 0; g < kGroupsPerThread; ++g) keys[g] = order_key(maxima[g]);
  std::uint32_t bound = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    std::uint32_t count = 0;
    MIXTAPE_UNROLL
    for (int g = 0; g < kGroupsPerThread; ++g) count += keys[g] >= (bound | bit) ? 1u : 0u;
    if (block_count(count, scratch) >= k) bound |= bit;
  }
  return bound;
}

// Entries that may be among the largest: in any order.
struct CandidateEntries {
  Shared<std::uint32_t> keys, indices;
  std::int64_t size;
  MIXTAPE_DEVICE std::uint32_t key(std::int64_t i) const { return keys[i]; }
  MIXTAPE_DEVICE std::uint32_t index(std::int64_t i) const { return indices[i]; }
};
template <class T>
struct RowEntries {
  Global<const T> row;
  std::int64_t size;
  MIXTAPE_DEVICE std::uint32_t key(std::int64_t i) const { return order_key(to_f32(row[i])); }
  MIXTAPE_DEVICE std::uint32_t index(std::int64_t i) const { return static_cast<std::uint32_t>(i); }
};

// Collects the entries that reach the bound, as far as there is room; size counts all of them.
template <int N, class T>
MIXTAPE_DEVICE void collect(Global<const T> row, std::int64_t cols, std::uint32_t bound,
                            CandidateEntries& found, Shared<std::uint32_t> counter) {
  if (thread_x() == 0) counter[0] = 0;
  barrier();
  const float low = key_value(bound);
  constexpr int kPacks = target_packs(N);
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  for (std::int64_t at = static_cast<std::int64_t>(thread_x()) * N; at < cols; at += kPacks * step) {
    Run<T, N, kPacks> run;
    load_run(row, at, step, cols, run);
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) {
        const float v = to_f32(run.packs[h].v[i]);
        if (v < low || at + h * step >= cols) continue;
        const std::uint32_t slot = atomic_add(counter, 1u);
        if (slot >= kCandidates) continue;
        found.keys[slot] = order_key(v);
        found.indices[slot] = static_cast<std::uint32_t>(at + h * step + i);
      }
    }
  }
  barrier();
  found.size = static_cast<std::int64_t>(static_cast<std::uint32_t>(counter[0]));
  barrier();
}

// The largest k: the keys above `key`, and those equal to it up to index `last`.
struct Selection {
  std::uint32_t key, last;
};

template <class Entries>
MIXTAPE_DEVICE std::uint32_t count_reaching(const Entries& entries, std::uint32_t key,
                                            Shared<std::uint32_t> scratch) {
  std::uint32_t count = 0;
  for (std::int64_t i = thread_x(); i < entries.size; i += threads_x()) count += entries.key(i) >= key;
  return block_count(count, scratch);
}
template <class Entries>
MIXTAPE_DEVICE std::uint32_t count_equal(const Entries& entries, std::uint32_t key, std::uint32_t before,
                                         Shared<std::uint32_t> scratch) {
  std::uint32_t count = 0;
  for (std::int64_t i = thread_x(); i < entries.size; i += threads_x())
    count += entries.key(i) == key && entries.index(i) < before;
  return block_count(count, scratch);
}

template <class Entries>
MIXTAPE_DEVICE Selection select(const Entries& entries, std::uint32_t k, Shared<std::uint32_t> scratch) {
  Selection s{0, 0};
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (count_reaching(entries, s.key | bit, scratch) >= k) s.key |= bit;
  }
  const std::uint32_t above = s.key == 0xffffffffu ? 0 : count_reaching(entries, s.key + 1, scratch);
  if (count_reaching(entries, s.key, scratch) == k) return Selection{s.key, 0xffffffffu};
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (count_equal(entries, s.key, s.last | bit, scratch) < k - above) s.last |= bit;
  }
  return s;
}

// Marks the selected entries that are in the part of the row from column `first` on.
template <class Entries>
MIXTAPE_DEVICE void mark_selected(const Entries& entries, const Selection& s, std::int64_t first,
                                  std::int64_t columns, Shared<std::uint32_t> chosen) {
  clear_chosen(chosen, columns);
  for (std::int64_t i = thread_x(); i < entries.size; i += threads_x()) {
    const std::uint32_t key = entries.key(i), index = entries.index(i);
    const std::int64_t column = static_cast<std::int64_t>(index) - first;
    if (column < 0 || column >= columns) continue;
    if (key > s.key || (key == s.key && index <= s.last)) set_chosen(chosen, column);
  }
  barrier();
}

// The marked entries of a part by rising column; returns how many there are.
template <class T>
MIXTAPE_DEVICE std::uint32_t store_marked(Global<const T> row, std::int64_t first, std::int64_t columns,
                                          Shared<std::uint32_t> chosen, Global<float> values,
                                          Global<std::uint32_t> indices, Shared<std::uint32_t> scratch) {
  const int words = static_cast<int>((columns + 31) / 32);
  const int share = (words + threads_x() - 1) / threads_x();
  const int begin = thread_x() * share, end = begin + share < words ? begin + share : words;
  std::uint32_t count = 0, total = 0;
  for (int w = begin; w < end; ++w) count += static_cast<std::uint32_t>(count_bits(chosen[w]));
  std::uint32_t at = count_before(count, total, scratch);
  for (int w = begin; w < end; ++w) {
    for (std::uint32_t bits = chosen[w]; bits != 0; bits &= bits - 1) {
      const std::int64_t column = first + w * 32 + lowest_bit(bits);
      values[at] = to_f32(row[column]);
      indices[at++] = static_cast<std::uint32_t>(column);
    }
  }
  return total;
}

// Writes the selection; returns the log-sum-exp of the other entries.
template <class T, class Entries>
MIXTAPE_DEVICE float store_targets(const KlDivParams& p, Global<const T> row, bool is_dense,
                                   const Entries& entries, Global<float> values,
                                   Global<std::uint32_t> indices, Shared<std::uint32_t> chosen,
                                   Shared<std::uint32_t> counts, Shared<float> scratch) {
  const Selection s = select(entries, static_cast<std::uint32_t>(p.k), counts);
  LogSum rest{minus_infinity(), 0.0f};
  std::int64_t done = 0;
  for (std::int64_t first = 0; first < p.cols; first += kChosenColumns) {
    const std::int64_t columns = part_columns(p.cols, first);
    mark_selected(entries, s, first, columns, chosen);
    done += store_marked(row, first, columns, chosen, values + done, indices + done, counts);
    if (is_dense) {
      add_rest<PackOf<T, T>::kWidth>(rest, row + first, columns, p.inv_t, chosen);
    } else {
      add_rest<1>(rest, row + first, columns, p.inv_t, chosen);
    }
  }
  const LogSum all = block_log_sum(rest, scratch);
  return finite_max(all.max) + log_f32(all.sum);
}

template <int N, class T>
MIXTAPE_DEVICE void find_candidates(const KlDivParams& p, Global<const T> row, CandidateEntries& found,
                                    Shared<std::uint32_t> counts) {
  float maxima[kGroupsPerThread];
  group_maxima<N>(row, p.cols, maxima);
  collect<N>(row, p.cols, bound_of(maxima, p.k, counts), found, counts);
}

template <class T>
MIXTAPE_DEVICE void top_k_targets(const KlDivParams& p, Global<const T> teacher, Global<float> values,
                                  Global<std::uint32_t> indices, Global<float> rest, CandidateEntries found,
                                  Shared<std::uint32_t> chosen, Shared<std::uint32_t> counts,
                                  Shared<float> scratch) {
  constexpr int kPack = PackOf<T, T>::kWidth;
  const std::int64_t at = block_x();
  const Global<const T> row = teacher + at * p.cols;
  const bool is_dense = is_aligned(teacher, 16) && p.cols % kPack == 0;
  if (is_dense) {
    find_candidates<kPack>(p, row, found, counts);
  } else {
    find_candidates<1>(p, row, found, counts);
  }
  values += at * p.k;
  indices += at * p.k;
  float others;
  if (found.size <= kCandidates) {
    others = store_targets(p, row, is_dense, found, values, indices, chosen, counts, scratch);
  } else {
    const RowEntries<T> all{row, p.cols};
    others = store_targets(p, row, is_dense, all, values, indices, chosen, counts, scratch);
  }
  if (thread_x() == 0) rest[at] = others;
}

#define TARGETS(T)                                                                                     \
  MIXTAPE_KERNEL(top_k_targets_##T, 512, KlDivParams p, Global<const T> teacher, Global<float> values, \
                 Global<std::uint32_t> indices, Global<float> rest) {                                  \
    await_earlier();                                                                                   \
    MIXTAPE_SHARED(std::uint32_t, chosen, kChosenWords);                                               \
    MIXTAPE_SHARED(std::uint32_t, keys, kCandidates);                                                  \
    MIXTAPE_SHARED(std::uint32_t, places, kCandidates);                                                \
    MIXTAPE_SHARED(std::uint32_t, counts, 32);                                                         \
    MIXTAPE_SHARED(float, scratch, 32);                                                                \
    const CandidateEntries found{keys, places, 0};                                                     \
    top_k_targets<T>(p, teacher, values, indices, rest, found, chosen, counts, scratch);               \
  }
MIXTAPE_VALUE_KERNELS(TARGETS)

}  // namespace mixtape
