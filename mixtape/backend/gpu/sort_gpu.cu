// A stable radix sort, least digit first. A pass: every tile counts its digits, the counts are summed digit
// by digit over the tiles (few tiles do that where they need it), every tile puts its keys after those that come before.
#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/backend/gpu/sort_params.h"

namespace mixtape {

constexpr int kDigits = 1 << kSortBits;
constexpr int kSortWarps = kSortThreads / kLanes;
constexpr int kRounds = kSortRounds;

MIXTAPE_DEVICE std::uint32_t key_at(const SortParams& p, Global<const std::uint32_t> keys, std::int64_t i) {
  const std::uint32_t bits = keys[i];
  if (p.is_first == 0) return bits;
  const std::int64_t key = index_value(bits, p.keys_are_signed != 0);
  return static_cast<std::uint32_t>(key >= 0 && key < p.limit ? key : p.limit);
}
MIXTAPE_DEVICE std::uint32_t digit_of(const SortParams& p, std::uint32_t key) {
  return (key >> p.shift) & ((1u << p.bits) - 1u);
}

// counts [digits, tiles]
MIXTAPE_KERNEL(sort_count, kSortThreads, SortParams p, Global<const std::uint32_t> keys,
               Global<std::uint32_t> counts, Global<std::uint64_t> errors) {
  await_earlier();
  MIXTAPE_SHARED(std::uint32_t, found, kDigits);
  const int digits = 1 << p.bits;
  for (int d = thread_x(); d < digits; d += threads_x()) found[d] = 0;
  barrier();
  const std::int64_t first = static_cast<std::int64_t>(block_x()) * kRounds * threads_x() + thread_x();
  MIXTAPE_UNROLL
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = first + round * threads_x();
    if (i >= p.count) break;
    const std::uint32_t key = key_at(p, keys, i);
    if (p.is_first != 0 && key == static_cast<std::uint32_t>(p.limit)) report_index(errors, i, keys[i]);
    atomic_add(found + digit_of(p, key), 1u);
  }
  barrier();
  for (int d = thread_x(); d < digits; d += threads_x()) counts[d * p.tiles + block_x()] = found[d];
}

// A digit per block: its counts become how many keys of that digit the tiles before hold.
MIXTAPE_KERNEL(sort_scan, 256, SortParams p, Global<std::uint32_t> counts, Global<std::uint32_t> totals) {
  await_earlier();
  MIXTAPE_SHARED(std::uint32_t, scratch, kLanes);
  const Global<std::uint32_t> row = counts + block_x() * p.tiles;
  std::uint32_t before = 0;
  for (std::int64_t done = 0; done < p.tiles; done += threads_x()) {
    const std::int64_t tile = done + thread_x();
    const std::uint32_t count = tile < p.tiles ? static_cast<std::uint32_t>(row[tile]) : 0u;
    std::uint32_t all;
    const std::uint32_t here = threads_before(count, scratch, all);
    if (tile < p.tiles) row[tile] = before + here;
    before += all;
  }
  if (thread_x() == 0) totals[block_x()] = before;
}

// The lanes that hold the same digit; those without a key are in none.
MIXTAPE_DEVICE std::uint32_t lanes_alike(std::uint32_t digit, int bits, bool has_key) {
  std::uint32_t alike = lane_ballot(has_key);
  for (int b = 0; b < bits; ++b) {
    const bool is_set = ((digit >> b) & 1u) != 0;
    const std::uint32_t set = lane_ballot(is_set);
    alike &= is_set ? set : ~set;
  }
  return alike;
}

// Keys of a digit: of all tiles, and of those before this one.
struct DigitCount {
  std::uint32_t total, before;
};
MIXTAPE_DEVICE DigitCount digit_count(const SortParams& p, Global<const std::uint32_t> counts,
                                      Global<const std::uint32_t> totals, int digit) {
  const Global<const std::uint32_t> row = counts + digit * p.tiles;
  if (p.tiles > kFewTiles) return DigitCount{totals[digit], row[block_x()]};
  constexpr int kAtOnce = 16;
  DigitCount found{0u, 0u};
  MIXTAPE_ROLLED
  for (int first = 0; first < p.tiles; first += kAtOnce) {
    std::uint32_t held[kAtOnce];
    MIXTAPE_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      held[i] = first + i < p.tiles ? static_cast<std::uint32_t>(row[first + i]) : 0u;
    MIXTAPE_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      found.total += held[i];
      found.before += first + i < block_x() ? held[i] : 0u;
    }
  }
  return found;
}

// A warp takes neighbouring keys, 32 at a time; `ranks` counts, per warp and digit, the keys that it has
// seen. The only pass tells where keys begin.
MIXTAPE_KERNEL(sort_scatter, kSortThreads, SortParams p, Global<const std::uint32_t> keys,
               Global<const std::uint32_t> places, Global<const std::uint32_t> counts,
               Global<const std::uint32_t> totals, Global<std::uint32_t> out_keys,
               Global<std::uint32_t> out_places, Global<std::uint32_t> begins) {
  await_earlier();
  MIXTAPE_SHARED(std::uint32_t, ranks, kSortWarps * kDigits);
  MIXTAPE_SHARED(std::uint32_t, scratch, kLanes);
  const int digits = 1 << p.bits, warps = threads_x() / kLanes;
  for (int d = thread_x(); d < warps * digits; d += threads_x()) ranks[d] = 0;
  barrier();
  const Shared<std::uint32_t> mine = ranks + warp() * digits;
  const std::int64_t first =
      (static_cast<std::int64_t>(block_x()) * threads_x() + warp() * kLanes) * kRounds + lane();
  std::uint32_t key[kRounds], rank[kRounds];
  MIXTAPE_UNROLL
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = first + round * kLanes;
    key[round] = i < p.count ? key_at(p, keys, i) : 0u;
  }
  MIXTAPE_UNROLL
  for (int round = 0; round < kRounds; ++round) {
    const bool has_key = first + round * kLanes < p.count;
    const std::uint32_t digit = digit_of(p, key[round]);
    const std::uint32_t alike = lanes_alike(digit, p.bits, has_key);
    const std::uint32_t seen = mine[digit];
    rank[round] = seen + static_cast<std::uint32_t>(count_bits(alike & ((1u << lane()) - 1u)));
    lane_barrier();
    if (has_key && lowest_bit(alike) == lane())
      mine[digit] = seen + static_cast<std::uint32_t>(count_bits(alike));
    lane_barrier();
  }
  barrier();
  std::uint32_t smaller = 0, all;  // keys of smaller digits
  for (int first_digit = 0; first_digit < digits; first_digit += threads_x(), smaller += all) {
    const int d = first_digit + thread_x();
    DigitCount found{0u, 0u};
    if (d < digits) found = digit_count(p, counts, totals, d);
    std::uint32_t before = smaller + threads_before(found.total, scratch, all);
    if (d >= digits) continue;
    if (p.is_only != 0 && block_x() == 0 && d <= p.limit) begins[d] = before;
    before += found.before;
    for (int w = 0; w < warps; ++w) {
      const std::uint32_t here = ranks[w * digits + d];
      ranks[w * digits + d] = before;
      before += here;
    }
  }
  barrier();
  MIXTAPE_UNROLL
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t i = first + round * kLanes;
    if (i >= p.count) break;
    const std::uint32_t to = mine[digit_of(p, key[round])] + rank[round];
    out_keys[to] = key[round];
    out_places[to] = p.is_first != 0 ? static_cast<std::uint32_t>(i) : static_cast<std::uint32_t>(places[i]);
  }
}

MIXTAPE_KERNEL(sort_begins, 256, SortParams p, Global<const std::uint32_t> keys,
               Global<std::uint32_t> begins) {
  await_earlier();
  const std::int64_t key = global_thread();
  if (key > p.limit) return;
  std::int64_t low = 0, high = p.count;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (static_cast<std::int64_t>(keys[middle]) < key) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  begins[key] = static_cast<std::uint32_t>(low);
}

}  // namespace mixtape
