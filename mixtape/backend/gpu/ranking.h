// Ranking inside GPU kernels: the k largest of a row that a warp holds.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {

// Held neighbouring columns of a row in each lane of a warp, the largest first, equal ones by rising column.
template <int Held>
struct RankedKeys {
  std::uint32_t key[Held], column[Held];
};

template <class T, int Held>
MIXTAPE_DEVICE void load_ranked(Global<const T> row, std::int64_t cols, RankedKeys<Held>& held) {
  constexpr int kBytes = Held * sizeof(T) < 16 ? Held * sizeof(T) : 16;
  const int first = lane() * Held;
  Pack<T, Held> pack;
  const bool is_packed = cols % Held == 0 && is_aligned(row, kBytes);
  if (is_packed && first < cols) pack = load_pack<Held>(row + first);
  MIXTAPE_UNROLL
  for (int h = 0; h < Held; ++h) {
    held.column[h] = static_cast<std::uint32_t>(first + h);
    if (!is_packed && first + h < cols) pack.v[h] = row[first + h];
    held.key[h] = first + h < cols ? order_key(to_f32(pack.v[h])) : 0u;
  }
}

// Neighbours change places until the larger stands first; equal ones stay.
template <int Held>
MIXTAPE_DEVICE void rank_held(RankedKeys<Held>& held) {
  MIXTAPE_UNROLL
  for (int last = Held - 1; last > 0; --last) {
    MIXTAPE_UNROLL
    for (int h = 0; h < last; ++h) {
      const std::uint32_t a = held.key[h], b = held.key[h + 1];
      const std::uint32_t a_column = held.column[h], b_column = held.column[h + 1];
      const bool is_wrong = a < b;
      held.key[h] = is_wrong ? b : a;
      held.key[h + 1] = is_wrong ? a : b;
      held.column[h] = is_wrong ? b_column : a_column;
      held.column[h + 1] = is_wrong ? a_column : b_column;
    }
  }
}

struct Ranked {
  std::uint32_t key, column;
};

// The warp's largest, the same in every lane; it is taken out of its lane.
template <int Held>
MIXTAPE_DEVICE Ranked take_largest(RankedKeys<Held>& held) {
  const std::uint32_t key = lane_max_u32(held.key[0]);
  const int owner = lowest_bit(lane_ballot(held.key[0] == key));
  const std::uint32_t column = lane_shuffle(held.column[0], owner);
  if (lane() == owner) {
    MIXTAPE_UNROLL
    for (int h = 0; h + 1 < Held; ++h) {
      held.key[h] = held.key[h + 1];
      held.column[h] = held.column[h + 1];
    }
    held.key[Held - 1] = 0;
  }
  return {key, column};
}

// Lane j gets the place of the row's j-th largest, j < k <= 32.
template <int Held>
MIXTAPE_DEVICE Ranked take_largest_k(RankedKeys<Held>& held, int k) {
  Ranked mine{0, 0};
  for (int j = 0; j < k; ++j) {
    const Ranked next = take_largest(held);
    if (lane() == j) mine = next;
  }
  return mine;
}

}  // namespace mixtape
