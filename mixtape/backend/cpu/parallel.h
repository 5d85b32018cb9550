// Loops over the threads that all kernels share. What a chunk computes may depend on its bounds, which follow
// from the shape alone; the number of threads decides only who runs it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

#include "hwy/cache_control.h"
#include "mixtape/backend/cpu/threads.h"

namespace mixtape::cpu {

// Calls body(begin, end) for consecutive chunks of at most `grain` that cover [0, count). Runs on the calling
// thread when there is one chunk or the caller is itself inside such a loop. Where there are many, a thread
// takes up to eight neighbours at once, so that it reads memory in long stretches. Stores past the caches are
// done when it returns. Rethrows the first exception.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t chunks = (count + grain - 1) / grain;
  const int threads = thread_count();
  if (chunks == 1 || threads == 1 || is_inside_job()) {
    for (std::int64_t c = 0; c < chunks; ++c) body(c * grain, std::min(count, (c + 1) * grain));
    hwy::FlushStream();
    return;
  }
  std::exception_ptr error;
  std::mutex mutex;
  auto run = [&](std::int64_t first, std::int64_t last) {
    try {
      for (std::int64_t c = first; c < last; ++c) body(c * grain, std::min(count, (c + 1) * grain));
      hwy::FlushStream();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  const std::int64_t turn = std::clamp<std::int64_t>(chunks / (8 * threads), 1, 8);
  using Run = decltype(run);
  share(
      chunks, turn,
      [](void* context, std::int64_t first, std::int64_t last) {
        (*static_cast<Run*>(context))(first, last);
      },
      &run);
  if (error) std::rethrow_exception(error);
}

// Elements per chunk that make a thread's share worth waking it: about 32 K elements.
inline std::int64_t row_grain(std::int64_t cols) {
  return std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(cols, 1));
}
// Rows per chunk for for_each_row, which reads the first row of a chunk by itself: a few, where there are
// enough.
inline std::int64_t neighbour_grain(std::int64_t rows, std::int64_t cols) {
  return std::max(row_grain(cols), std::clamp<std::int64_t>(rows / 64, 1, 8));
}

}  // namespace mixtape::cpu
