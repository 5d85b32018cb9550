// Geometry of kernels that share a row among threads or blocks.
#pragma once

#include <bit>

#include "mixtape/backend/gpu/launcher.h"
#include "mixtape/backend/gpu/partials_params.h"

namespace mixtape::gpu {

// Rows that kernels on clusters hold: `size` blocks a row, `held` packs per thread. size 0: too wide.
struct ClusterShape {
  int size, held;
  Grid grid, block;
  // Of a row's packs that a block holds.
  std::uint32_t block_bytes() const { return block[0] * static_cast<std::uint32_t>(held) * 16; }
  std::string suffix() const { return str("_cluster", size, "_", held); }
};

// Of rows that a cluster goes through, the most that pay.
inline constexpr std::int64_t kClusterRows = 4;

// Blocks of up to 512 threads that hold 8 packs, or 10, of f32, and of up to 256 that hold 10 of 16-bit values. A cluster
// has up to `most_rows` rows, as many as leave four times as many clusters as a large card runs at once.
inline ClusterShape cluster_shape(std::int64_t rows, std::int64_t cols, std::size_t bytes,
                                  std::int64_t most_rows = kClusterRows) {
  const std::int64_t packs = ceil_div(cols * static_cast<std::int64_t>(bytes), 16),
                     most = bytes == 4 ? 512 : 256;
  const int few = bytes == 4 ? 8 : 10;
  for (const auto& [size, held] : {std::pair{1, few}, {2, few}, {4, few}, {8, few}, {8, 10}}) {
    const std::int64_t threads = ceil_div(ceil_div(packs, size * held), 32) * 32;
    if (threads > most) continue;
    const std::int64_t each = std::clamp<std::int64_t>(rows * size / 1024, 1, most_rows);
    return {size, held, grid_of(ceil_div(rows, each) * size), {static_cast<std::uint32_t>(threads), 1, 1}};
  }
  return {0, 0, {1, 1, 1}, {1, 1, 1}};
}

// For rows that threads loop over, about four of a row's `units` each: {threads of a row, rows of a block}.
inline Grid row_block(std::int64_t units) {
  const std::int64_t threads = ceil_div(units, 4);
  if (threads > 32)
    return {static_cast<std::uint32_t>(std::min(ceil_div(threads, 32) * 32, std::int64_t{256})), 1, 1};
  const std::uint32_t part = std::bit_ceil(static_cast<std::uint32_t>(threads));
  return {part, 256 / part, 1};
}

// The launch of a kernel that is add_partials (partials.h). Many blocks get many threads beside few columns.
inline void launch_partials(const Call& call, const std::string& kernel, const PartialsParams& p,
                            const Argument& partials, const Argument& dx) {
  const std::uint32_t x = p.blocks > 4 * (kPartialThreads / kMostPartialsX) ? 2 : kMostPartialsX;
  call.launch(kernel, grid_of(ceil_div(p.cols, std::int64_t{x} * kPartialPack)), {x, kPartialThreads / x, 1},
              p, {partials, dx});
}

inline bool rows_are_packs(std::initializer_list<const Buffer*> buffers) {
  for (const Buffer* b : buffers) {
    if (b->byte_offset() % 16 != 0) return false;
    if (static_cast<std::size_t>(b->shape().cols()) * size_of(b->dtype()) % 16 != 0) return false;
  }
  return true;
}

}  // namespace mixtape::gpu
