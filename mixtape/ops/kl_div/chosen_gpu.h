// A row without its K chosen entries, in GPU kernels: a bit per column in shared memory, for a part of the
// row at a time.
#pragma once

#include "mixtape/backend/gpu/logits.h"

namespace mixtape {

constexpr int kChosenWords = 4096;
constexpr std::int64_t kChosenColumns = std::int64_t{kChosenWords} * 32;  // of a part

// Columns of the part of a row that begins at column `first`.
MIXTAPE_DEVICE std::int64_t part_columns(std::int64_t cols, std::int64_t first) {
  return cols - first < kChosenColumns ? cols - first : kChosenColumns;
}

MIXTAPE_DEVICE void clear_chosen(Shared<std::uint32_t> chosen, std::int64_t columns) {
  barrier();
  for (int w = thread_x(); w < (columns + 31) / 32; w += threads_x()) chosen[w] = 0;
  barrier();
}
MIXTAPE_DEVICE void set_chosen(Shared<std::uint32_t> chosen, std::int64_t column) {
  atomic_add(chosen + column / 32, 1u << (column % 32));
}
// Marks those of the k distinct indices that are in the part.
MIXTAPE_DEVICE void mark_chosen(Shared<std::uint32_t> chosen, std::int64_t first, std::int64_t columns,
                                Global<const std::uint32_t> indices, std::int64_t k) {
  clear_chosen(chosen, columns);
  for (std::int64_t j = thread_x(); j < k; j += threads_x()) {
    const std::int64_t column = static_cast<std::int64_t>(indices[j]) - first;
    if (column >= 0 && column < columns) set_chosen(chosen, column);
  }
  barrier();
}
// The bits of N columns from `column` of the part on, a multiple of N.
template <int N>
MIXTAPE_DEVICE std::uint32_t chosen_bits(Shared<std::uint32_t> chosen, std::int64_t column) {
  return chosen[column / 32] >> (column % 32) & ((1u << N) - 1u);
}

// Adds the part's entries that are not chosen.
template <int N, class T>
MIXTAPE_DEVICE void add_rest(LogSum& s, Global<const T> part, std::int64_t columns, float scale,
                             Shared<std::uint32_t> chosen) {
  constexpr int kPacks = 2;
  const std::int64_t step = static_cast<std::int64_t>(threads_x()) * N;
  for (std::int64_t at = static_cast<std::int64_t>(thread_x()) * N; at < columns; at += kPacks * step) {
    Run<T, N, kPacks> run;
    load_run(part, at, step, columns, run);
    MIXTAPE_UNROLL
    for (int h = 0; h < kPacks; ++h) {
      if (at + h * step >= columns) break;
      const std::uint32_t bits = chosen_bits<N>(chosen, at + h * step);
      if (bits == 0) continue;
      MIXTAPE_UNROLL
      for (int i = 0; i < N; ++i) {
        if ((bits >> i & 1u) != 0) run.packs[h].v[i] = from_f32<T>(minus_infinity());
      }
    }
    add_run(s, run, scale);
  }
}

// The log-sum-exp, in two numbers, of the entries of a row that are not among the k distinct indices. The
// maximum is theirs alone, so that a small rest beside a large entry keeps its digits.
template <class T>
MIXTAPE_DEVICE LogSum rest_log_sum(Global<const T> row, std::int64_t cols, bool is_dense, float scale,
                                   Global<const std::uint32_t> indices, std::int64_t k,
                                   Shared<std::uint32_t> chosen, Shared<float> scratch) {
  LogSum s{minus_infinity(), 0.0f};
  for (std::int64_t first = 0; first < cols; first += kChosenColumns) {
    const std::int64_t columns = part_columns(cols, first);
    mark_chosen(chosen, first, columns, indices, k);
    if (is_dense) {
      add_rest<PackOf<T, T>::kWidth>(s, row + first, columns, scale, chosen);
    } else {
      add_rest<1>(s, row + first, columns, scale, chosen);
    }
  }
  return block_log_sum(s, scratch);
}

}  // namespace mixtape
