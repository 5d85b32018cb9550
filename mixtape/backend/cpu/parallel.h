// Loops over the one set of OpenMP threads. What a chunk computes may depend on its bounds, which follow from
// the shape alone; the number of threads decides only who runs it.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

#include "hwy/cache_control.h"

namespace mixtape::cpu {

// Calls body(begin, end) for consecutive chunks of at most `grain` that cover [0, count). Runs on the calling
// thread when there is one chunk or the caller is itself inside a parallel region. Where there are many, a
// thread takes up to eight neighbours at once, so that it reads memory in long stretches. Stores past the
// caches are done when it returns. Rethrows the first exception.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  const std::int64_t chunks = (count + grain - 1) / grain;
  if (chunks == 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
    for (std::int64_t c = 0; c < chunks; ++c) body(c * grain, std::min(count, (c + 1) * grain));
    hwy::FlushStream();
    return;
  }
  std::exception_ptr error;
  std::mutex mutex;
  const std::int64_t turn = std::clamp<std::int64_t>(chunks / (8 * omp_get_max_threads()), 1, 8);
#pragma omp parallel for schedule(dynamic, turn)
  for (std::int64_t c = 0; c < chunks; ++c) {
    try {
      body(c * grain, std::min(count, (c + 1) * grain));
      hwy::FlushStream();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  }
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
