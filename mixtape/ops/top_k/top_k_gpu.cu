#include "mixtape/backend/gpu/lanes.h"
#include "mixtape/backend/gpu/ranking.h"
#include "mixtape/ops/top_k/top_k_gpu_params.h"
#include "mixtape/ops/top_k/top_k_params.h"

namespace mixtape {

// A row per warp: every lane ranks its own columns, the largest of the lanes' largest is taken k times.
template <class T, int Held>
MIXTAPE_DEVICE void top_k_forward_held(const TopKParams& p, Global<const T> x, Global<T> values,
                                       Global<std::uint32_t> indices) {
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const Global<const T> in = x + row * p.cols;
  RankedKeys<Held> held;
  load_ranked<T, Held>(in, p.cols, held);
  rank_held(held);
  const int k = static_cast<int>(p.k);
  const Ranked mine = take_largest_k(held, k);
  if (lane() >= k) return;
  indices[row * p.k + lane()] = mine.column;
  values[row * p.k + lane()] = static_cast<T>(in[mine.column]);
}
#define FORWARD_HELD(T, HELD)                                                                            \
  MIXTAPE_KERNEL(top_k_forward_##T##_held##HELD, 256, TopKParams p, Global<const T> x, Global<T> values, \
                 Global<std::uint32_t> indices) {                                                        \
    await_earlier();                                                                                     \
    top_k_forward_held<T, HELD>(p, x, values, indices);                                                  \
  }
#define FORWARD(T)   \
  FORWARD_HELD(T, 1) \
  FORWARD_HELD(T, 2) \
  FORWARD_HELD(T, 4) \
  FORWARD_HELD(T, 8) \
  FORWARD_HELD(T, 16)
MIXTAPE_VALUE_KERNELS(FORWARD)

// Any row by a block. An entry is a key with the complement of its column below: all of a row differ, larger
// ones come first. The row is narrowed down, eleven bits of the entries at a time, until those above the
// bound are few; they are collected in any order and sorted.
constexpr int kDigitBits = 11, kDigitCount = 1 << kDigitBits;

MIXTAPE_DEVICE std::uint64_t row_entry(float v, std::int64_t column) {
  return static_cast<std::uint64_t>(order_key(v)) << 32 | (0xffffffffu - static_cast<std::uint32_t>(column));
}

// Calls visit.entry(e) for every entry of a row; several packs per thread are under way at a time.
template <class T, int N, class Visit>
MIXTAPE_DEVICE void visit_packs(Global<const T> row, std::int64_t cols, Visit visit) {
  constexpr int kPacks = N == 1 ? 4 : 16 / N;
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  for (std::int64_t first = 0; first < cols; first += kPacks * step) {
    Pack<T, N> packs[kPacks];
    MIXTAPE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t c = first + p * step + thread_x() * N;
      if (c < cols) packs[p] = load_pack<N>(row + c);
    }
    lane_barrier();
    MIXTAPE_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      const std::int64_t c = first + p * step + thread_x() * N;
      if (c >= cols) break;
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) visit.entry(row_entry(to_f32(packs[p].v[i]), c + i));
    }
  }
}
template <class T, class Visit>
MIXTAPE_DEVICE void visit_row(Global<const T> row, std::int64_t cols, Visit visit) {
  constexpr int kPack = 16 / sizeof(T);
  if (cols % kPack == 0 && is_aligned(row, 16)) {
    visit_packs<T, kPack>(row, cols, visit);
  } else {
    visit_packs<T, 1>(row, cols, visit);
  }
}

struct CountDigits {
  Shared<std::uint32_t> counts;
  int shift, bits;
  std::uint64_t prefix;  // of the entries that count, above the digit
  bool is_first;         // there is nothing above
  MIXTAPE_DEVICE void entry(std::uint64_t e) const {
    if (is_first || (e >> (shift + bits)) == prefix)
      atomic_add(counts + static_cast<int>((e >> shift) & ((1u << bits) - 1u)), 1u);
  }
};
template <class Entries>
struct CollectEntries {
  Entries entries;
  Shared<std::uint32_t> size;
  std::uint64_t bound;
  MIXTAPE_DEVICE void entry(std::uint64_t e) const {
    if (e >= bound) entries[atomic_add(size, 1u)] = e;
  }
};

struct SelectMemory {
  Shared<std::uint32_t> counts;   // kDigitCount
  Shared<std::uint32_t> scratch;  // 32
  Shared<std::uint32_t> found;    // 2: a digit, how many entries have larger ones
};

// The largest digit such that at least `wanted` entries have it or a larger one.
MIXTAPE_DEVICE void find_digit(const SelectMemory& memory, std::uint32_t wanted) {
  const int share = kDigitCount / threads_x();
  const int last = kDigitCount - 1 - thread_x() * share;  // this thread's digits are last, last - 1, ...
  std::uint32_t mine = 0, all;
  for (int d = 0; d < share; ++d) mine += memory.counts[last - d];
  std::uint32_t before = threads_before(mine, memory.scratch, all);
  if (before < wanted && wanted <= before + mine) {
    int digit = last;
    for (; before + memory.counts[digit] < wanted; --digit) before += memory.counts[digit];
    memory.found[0] = static_cast<std::uint32_t>(digit);
    memory.found[1] = before;
  }
  barrier();
}

// A bound that at least k entries reach, and at most `goal`. Entries differ: with all bits it would be k.
template <class T>
MIXTAPE_DEVICE std::uint64_t find_bound(const TopKSelectParams& p, Global<const T> row,
                                        const SelectMemory& memory) {
  std::uint64_t prefix = 0;
  std::int64_t above = 0, reached = p.cols;
  int shift = 64;
  while (reached > p.goal) {
    const int bits = shift < kDigitBits ? shift : kDigitBits;
    const bool is_first = shift == 64;
    shift -= bits;
    for (int d = thread_x(); d < kDigitCount; d += threads_x()) memory.counts[d] = 0;
    barrier();
    visit_row<T>(row, p.cols, CountDigits{memory.counts, shift, bits, prefix, is_first});
    barrier();
    find_digit(memory, static_cast<std::uint32_t>(p.k - above));
    const std::uint32_t digit = memory.found[0];
    prefix = prefix << bits | digit;
    above += memory.found[1];
    reached = above + memory.counts[digit];
    barrier();
  }
  return reached == p.cols ? 0 : prefix << shift;
}

// Falling. n is a power of two.
template <class Entries>
MIXTAPE_DEVICE void sort_entries(Entries entries, int n) {
  for (int size = 2; size <= n; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      for (int i = thread_x(); i < n / 2; i += threads_x()) {
        const int low = 2 * i - (i & (stride - 1));
        const std::uint64_t a = entries[low], b = entries[low + stride];
        if ((a < b) == ((low & size) == 0)) {
          entries[low] = b;
          entries[low + stride] = a;
        }
      }
      barrier();
    }
  }
}

template <class T, class Entries>
MIXTAPE_DEVICE void top_k_select(const TopKSelectParams& p, Global<const T> x, Global<T> values,
                                 Global<std::uint32_t> indices, Entries entries, const SelectMemory& memory) {
  const std::int64_t row = block_x();
  const Global<const T> in = x + row * p.cols;
  const std::uint64_t bound = find_bound<T>(p, in, memory);
  if (thread_x() == 0) memory.found[0] = 0;
  barrier();
  visit_row<T>(in, p.cols, CollectEntries<Entries>{entries, memory.found, bound});
  barrier();
  const int count = static_cast<int>(memory.found[0]);
  int n = 1;
  while (n < count) n *= 2;
  for (int i = count + thread_x(); i < n; i += threads_x()) entries[i] = 0;
  barrier();
  sort_entries(entries, n);
  for (std::int64_t j = thread_x(); j < p.k; j += threads_x()) {
    const std::uint32_t column = 0xffffffffu - static_cast<std::uint32_t>(entries[j]);
    indices[row * p.k + j] = column;
    if (p.wants_values != 0) values[row * p.k + j] = static_cast<T>(in[column]);
  }
}

#define SELECT(T)                                                                                       \
  MIXTAPE_KERNEL(top_k_select_##T, 1024, TopKSelectParams p, Global<const T> x, Global<T> values,       \
                 Global<std::uint32_t> indices) {                                                       \
    await_earlier();                                                                                    \
    MIXTAPE_SHARED(std::uint64_t, entries, kSharedEntries);                                             \
    MIXTAPE_SHARED(std::uint32_t, counts, kDigitCount);                                                 \
    MIXTAPE_SHARED(std::uint32_t, scratch, kLanes);                                                     \
    MIXTAPE_SHARED(std::uint32_t, found, 2);                                                            \
    top_k_select<T>(p, x, values, indices, entries, {counts, scratch, found});                          \
  }                                                                                                     \
  MIXTAPE_KERNEL(top_k_select_long_##T, 1024, TopKSelectParams p, Global<const T> x, Global<T> values,  \
                 Global<std::uint32_t> indices, Global<std::uint64_t> entries) {                        \
    await_earlier();                                                                                    \
    MIXTAPE_SHARED(std::uint32_t, counts, kDigitCount);                                                 \
    MIXTAPE_SHARED(std::uint32_t, scratch, kLanes);                                                     \
    MIXTAPE_SHARED(std::uint32_t, found, 2);                                                            \
    top_k_select<T>(p, x, values, indices, entries + block_x() * p.capacity, {counts, scratch, found}); \
  }
MIXTAPE_VALUE_KERNELS(SELECT)

// A row per warp. A row's indices differ.
template <class T>
MIXTAPE_DEVICE void top_k_backward(const TopKParams& p, Global<const std::uint32_t> indices,
                                   Global<const T> dvalues, Global<T> dx, Global<std::uint64_t> errors) {
  const std::int64_t row = row_index();
  if (row >= p.rows) return;
  const Global<T> out = dx + row * p.cols;
  if (p.accumulate == 0) zero_row(out, p.cols);
  lane_barrier();
  for (std::int64_t j = row * p.k + lane(); j < (row + 1) * p.k; j += kLanes) {
    const std::uint32_t column = indices[j];
    if (column >= p.cols) {
      report_index(errors, j, column);
    } else {
      const float before = p.accumulate != 0 ? to_f32(out[column]) : 0.0f;
      out[column] = from_f32<T>(before + to_f32(dvalues[j]));
    }
  }
}
#define BACKWARD(T)                                                                          \
  MIXTAPE_KERNEL(top_k_backward_##T, 256, TopKParams p, Global<const std::uint32_t> indices, \
                 Global<const T> dvalues, Global<T> dx, Global<std::uint64_t> errors) {      \
    await_earlier();                                                                         \
    top_k_backward<T>(p, indices, dvalues, dx, errors);                                      \
  }
MIXTAPE_VALUE_KERNELS(BACKWARD)

}  // namespace mixtape
