// The simulator's face of the words for matrix units. Copies arrive as late as they may.
#pragma once

#include <cmath>
#include <deque>
#include <functional>
#include <unordered_map>
#include <vector>

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {
namespace sim {

using Copy = std::function<void()>;
// The groups of copies under way of each thread; the last one is not committed yet.
inline std::deque<std::vector<Copy>>& copies() {
  static std::unordered_map<int, std::deque<std::vector<Copy>>> of_thread;
  std::deque<std::vector<Copy>>& mine = of_thread[here().thread[1] * here().threads[0] + here().thread[0]];
  if (mine.empty()) mine.emplace_back();
  return mine;
}

// Word (row, pair) of the 8x8 tile whose rows start at the addresses of lanes 8 * tile ... 8 * tile + 7.
template <class T>
std::uint32_t bits_of_pair(T low, T high) {
  return low.bits | static_cast<std::uint32_t>(high.bits) << 16;
}
template <class T>
float half_of(std::uint64_t bits, int half) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits >> (16 * half));
  return static_cast<float>(value);
}

}  // namespace sim

// Each lane reads its row, then hands it out in two halves.
template <class T>
void load_rows_of_tiles(std::uint32_t (&r)[4], Shared<T> row, bool is_transposed) {
  row.check_aligned(16);
  std::uint64_t mine[2];
  for (int half = 0; half < 2; ++half) {
    const auto pair = [&](int i) { return sim::bits_of_pair<T>(row[half * 4 + i], row[half * 4 + i + 1]); };
    const std::uint64_t low = pair(0), high = pair(2);
    mine[half] = low | high << 32;
  }
  const int g = lane() / 4, q = lane() % 4;
  const auto element = [&](int from, int column) {
    const std::uint64_t halves[2] = {lane_shuffle(mine[0], from), lane_shuffle(mine[1], from)};
    return static_cast<std::uint32_t>(halves[column / 4] >> (column % 4 * 16) & 0xffff);
  };
  for (int tile = 0; tile < 4; ++tile) {
    r[tile] = is_transposed ? element(tile * 8 + 2 * q, g) | element(tile * 8 + 2 * q + 1, g) << 16
                            : element(tile * 8 + g, 2 * q) | element(tile * 8 + g, 2 * q + 1) << 16;
  }
}
template <class T>
void load_matrices(std::uint32_t (&r)[4], Shared<T> tile, int at) {
  load_rows_of_tiles(r, tile + at, false);
}
template <class T>
void load_matrices_transposed(std::uint32_t (&r)[4], Shared<T> tile, int at) {
  load_rows_of_tiles(r, tile + at, true);
}

template <class T>
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  const std::uint64_t upper = a[0] | static_cast<std::uint64_t>(a[2]) << 32;
  const std::uint64_t lower = a[1] | static_cast<std::uint64_t>(a[3]) << 32;
  const std::uint64_t both = b0 | static_cast<std::uint64_t>(b1) << 32;
  const int g = lane() / 4, q = lane() % 4;
  for (int from = 0; from < 4; ++from) {  // holds rows or columns 2 from, 2 from + 1 and the same 8 further
    const std::uint64_t rows[2] = {lane_shuffle(upper, g * 4 + from), lane_shuffle(lower, g * 4 + from)};
    const std::uint64_t cols[2] = {lane_shuffle(both, 2 * q * 4 + from),
                                   lane_shuffle(both, (2 * q + 1) * 4 + from)};
    for (int i = 0; i < 4; ++i) {
      for (int k = 0; k < 4; ++k) c[i] += sim::half_of<T>(rows[i / 2], k) * sim::half_of<T>(cols[i % 2], k);
    }
  }
}

template <class T>
void copy_async(Shared<T> tile, int at, Global<const T> from, bool is_valid) {
  const Shared<T> to = tile + at;
  to.check_aligned(16);
  from.check_aligned(16);
  sim::copies().back().push_back([=] {
    for (int i = 0; i < 8; ++i) to[i] = is_valid ? static_cast<T>(from[i]) : T(0.0f);
  });
}
inline void commit_copies() { sim::copies().emplace_back(); }
template <std::size_t Groups>
void wait_copies() {
  auto& groups = sim::copies();
  while (groups.size() > Groups + 1) {
    for (const sim::Copy& copy : groups.front()) copy();
    groups.pop_front();
  }
}

template <class T>
std::uint32_t pack_pair(float low, float high) {
  return sim::bits_of_pair(T(low), T(high));
}
template <class T>
std::uint32_t fma_pairs(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto one = [&](int i) {
    return T(std::fma(sim::half_of<T>(a, i), sim::half_of<T>(b, i), sim::half_of<T>(c, i)));
  };
  return sim::bits_of_pair(one(0), one(1));
}
inline std::uint32_t and_or(std::uint32_t v, std::uint32_t mask, std::uint32_t bits) {
  return (v & mask) | bits;
}
inline int hidden(int v) { return v; }

}  // namespace mixtape
