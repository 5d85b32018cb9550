// Sums of gradient rows by id, for host kernels: embedding's own and those of tables stored otherwise.
#pragma once

#include <memory>

#include "hwy/cache_control.h"
#include "mixtape/backend/cpu/parallel.h"
#include "mixtape/backend/cpu/scratch.h"
#include "mixtape/core/bf16.h"
#include "mixtape/core/f16.h"
#include "mixtape/ops/embedding/embedding_params.h"
#include "mixtape/runtime/kernel_registry.h"

namespace mixtape::cpu {

// positions[begin[id] .. begin[id+1]) are the places where `id` occurs, in order. The positions are followed
// by kPadding zeros: whoever sums rows may look ahead.
struct Segments {
  static constexpr std::int64_t kPadding = 4;
  const std::int64_t* begin;
  const std::int64_t* positions;
};

// Reports the first id outside [0, rows) and drops all of them. Lives until the calling thread's next call.
Segments sort_ids(const HostCall& call, const std::uint32_t* ids, const EmbeddingParams& params);

// Columns [first, first + cols) of the rows dy[positions[i]], i < count, added in the contract's order.
// `block` is scratch; both hold cols elements.
void sum_segment(const float* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum);
void sum_segment(const bf16* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum);
void sum_segment(const f16* dy, std::int64_t hidden, const std::int64_t* positions, std::int64_t count,
                 std::int64_t first, std::int64_t cols, float* block, float* sum);

// An id with more occurrences than this is summed by all threads, a tile of columns each.
inline constexpr std::int64_t kLongSegment = 512;
inline constexpr std::int64_t kColumnTile = 256;

// Calls finish(id, sum) once for every id, from any thread: sum [hidden], or null where the id doesn't occur.
// It may store past the caches.
template <class T, class Finish>
void sum_segments(const Segments& segments, const T* dy, std::int64_t rows, std::int64_t hidden,
                  Finish&& finish) {
  const auto scratch = [](std::int64_t n) {
    return std::make_unique_for_overwrite<float[]>(static_cast<std::size_t>(n));
  };
  const auto count_of = [&](std::int64_t id) { return segments.begin[id + 1] - segments.begin[id]; };
  const auto positions_of = [&](std::int64_t id) { return segments.positions + segments.begin[id]; };
  parallel_for(rows, row_grain(hidden), [&](std::int64_t begin, std::int64_t end) {
    const auto block = scratch(hidden), sum = scratch(hidden);
    for (std::int64_t id = begin; id < end; ++id) {
      const std::int64_t count = count_of(id);
      if (count > kLongSegment) continue;
      if (count > 0) sum_segment(dy, hidden, positions_of(id), count, 0, hidden, block.get(), sum.get());
      finish(id, count > 0 ? sum.get() : nullptr);
    }
  });
  const auto sum = scratch(hidden);
  for (std::int64_t id = 0; id < rows; ++id) {
    if (count_of(id) <= kLongSegment) continue;
    parallel_for(hidden, kColumnTile, [&](std::int64_t first, std::int64_t last) {
      const auto block = scratch(last - first);
      sum_segment(dy, hidden, positions_of(id), count_of(id), first, last - first, block.get(),
                  sum.get() + first);
    });
    finish(id, sum.get());
  }
  hwy::FlushStream();
}

}  // namespace mixtape::cpu
