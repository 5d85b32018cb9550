// Which rows a block of a grouped product works on: found by the block itself from the experts' offsets.
#pragma once

#include "mixtape/backend/gpu/kernel_language.h"

namespace mixtape {

struct GroupTile {
  std::int64_t expert;      // -1: none, or bad offsets
  std::int64_t begin, end;  // rows
  bool is_bad;              // the offsets are not 0 ... T in rising order
};

constexpr int kGroupScratch = 40;

// Tile number `tile` when the rows of every expert are cut into tiles of `height`; all tiles of bad offsets
// together are the rows 0..T-1. Every thread of the block takes part: thread t looks at offset t.
MIXTAPE_DEVICE GroupTile find_group_tile(Global<const std::uint32_t> offsets, std::int64_t experts,
                                         std::int64_t rows, std::int64_t tile, int height,
                                         Global<std::uint64_t> errors, Shared<std::uint64_t> scratch) {
  constexpr std::uint64_t kBad = std::uint64_t{1} << 40;  // beside a count of tiles
  const Shared<std::uint64_t> found = scratch + kLanes;
  std::uint64_t before = 0;
  for (std::int64_t first = 0; first <= experts; first += block_threads()) {
    const std::int64_t e = first + flat_thread();
    std::int64_t begin = 0, end = 0;
    std::uint64_t mine = 0;
    if (e <= experts) {
      end = offsets[e];
      if (e > 0) begin = offsets[e - 1];
      const bool is_bad = end < begin || end > rows || (e == 0 && end != 0) || (e == experts && end != rows);
      if (is_bad) report_index(errors, e, static_cast<std::uint32_t>(end));
      mine = is_bad ? kBad : static_cast<std::uint64_t>((end - begin + height - 1) / height);
    }
    std::uint64_t upto = mine;
    for (int step = 1; step < kLanes; step *= 2) {
      const std::uint64_t other = lane_shuffle(upto, lane() >= step ? lane() - step : lane());
      if (lane() >= step) upto += other;
    }
    if (lane() == kLanes - 1) scratch[warp()] = upto;
    barrier();
    std::uint64_t total = before;
    for (int w = 0; w < block_threads() / kLanes; ++w) {
      if (w == warp()) upto += total;
      total += scratch[w];
    }
    const auto wanted = static_cast<std::uint64_t>(tile);
    if (tile >= 0 && wanted < upto && wanted >= upto - mine && upto < kBad) {
      begin += static_cast<std::int64_t>(wanted - (upto - mine)) * height;
      found[0] = static_cast<std::uint64_t>(e - 1);
      found[1] = static_cast<std::uint64_t>(begin);
      found[2] = static_cast<std::uint64_t>(begin + height < end ? begin + height : end);
    }
    before = total;
    barrier();
  }
  if (before >= kBad) {
    const std::int64_t begin = tile * height;
    return {-1, begin, begin + height < rows ? begin + height : rows, true};
  }
  if (tile < 0 || static_cast<std::uint64_t>(tile) >= before) return {-1, 0, 0, false};
  const auto word = [&](int i) { return static_cast<std::int64_t>(static_cast<std::uint64_t>(found[i])); };
  return {word(0), word(1), word(2), false};
}

// What the kernels read; a2 and b2 are those of the second product of a pair.
template <class A, class B>
struct GroupedReads {
  Global<const A> a;
  Global<const B> b;
  Global<const A> a2;
  Global<const B> b2;
};

}  // namespace mixtape
