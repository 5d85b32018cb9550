// What every bench compares itself with.
#pragma once

#include <functional>

namespace mixtape::testing {

struct Timing {
  double median, best;
};

// Seconds of one call of `work`, in real time, over about `seconds` of calls; a sample lasts at least 0.2 ms.
Timing time_calls(const std::function<void()>& work, double seconds);

// Bytes per second, read and written together, of a copy that moves `traffic` bytes in all (1 GB at most):
// the fastest of memcpy with one part per thread and the copy kernel of the CPU device.
Timing copy_bandwidth(double traffic);

}  // namespace mixtape::testing
