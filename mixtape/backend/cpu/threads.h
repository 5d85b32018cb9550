// The threads that all kernels share. A job is cut into pieces that the caller and free workers take in turn;
// the caller never waits for a worker that has not begun one, so beside a busy process it does the work
// alone.
#pragma once

#include <cstdint>

namespace mixtape::cpu {

// OpenMP's number (OMP_NUM_THREADS, omp_set_num_threads, or one per core), the caller among them.
int thread_count();
// Whether the calling thread is inside a job: then it works alone.
bool is_inside_job();

// work(context, begin, end) for consecutive ranges of at most `turn` pieces that cover [0, count); it must
// not throw. Jobs of several callers don't mix: while one runs, the others work alone.
using Work = void (*)(void* context, std::int64_t begin, std::int64_t end);
void share(std::int64_t count, std::int64_t turn, Work work, void* context) noexcept;

}  // namespace mixtape::cpu
