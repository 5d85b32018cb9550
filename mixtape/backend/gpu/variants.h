// Kernels that do the same at different speeds, as data: a launcher lists them from the fastest on, with the
// rows that each can take, and runs the first that fits. A trace (runtime/trace.h) tells what was passed over.
#pragma once

#include <bit>
#include <span>
#include <string>

#include "mixtape/backend/gpu/launcher.h"

namespace mixtape::gpu {

// As many warps as the row needs, or a power of two of threads below one.
inline constexpr std::uint32_t kWarpsOfRow = 0, kPartOfWarp = 1;

// A kernel over rows of `packs` 16-byte packs; a thread holds `held` of them.
struct RowVariant {
  const char* suffix;         // of the kernel's name
  std::int64_t most_packs;    // of a row
  std::uint32_t row_threads;  // or kWarpsOfRow, kPartOfWarp
  std::uint32_t block_rows;   // rows beside each other in a block; with kPartOfWarp as fill 256 threads
  int held;
};

// Threads of a block, x along the row.
inline Grid block_of(const RowVariant& v, std::int64_t packs) {
  if (v.row_threads == kPartOfWarp) {
    const std::uint32_t threads = std::bit_ceil(static_cast<std::uint32_t>(packs));
    return {threads, 256 / threads, 1};
  }
  if (v.row_threads != kWarpsOfRow) return {v.row_threads, v.block_rows, 1};
  return {static_cast<std::uint32_t>(ceil_div(ceil_div(packs, v.held), 32) * 32), v.block_rows, 1};
}

// Null where the row is too wide for all of them. Notes what was passed over.
const RowVariant* choose(const std::string& kernel, std::span<const RowVariant> variants, std::int64_t packs);

// Notes for the trace of the running dispatch.
void trace_launch(const Launch& launch);
void trace_pass_over(const std::string& kernel, const std::string& reason);

}  // namespace mixtape::gpu
