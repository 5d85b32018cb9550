#include "mixtape/testing/copy_bandwidth.h"

#include <omp.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "mixtape/core/stopwatch.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape::testing {
namespace {

double seconds_of(const std::function<void()>& work, int repeats) {
  const Stopwatch watch;
  for (int i = 0; i < repeats; ++i) work();
  return watch.seconds() / repeats;
}

void copy_by_parts(const std::byte* from, std::byte* to, std::size_t bytes) {
#pragma omp parallel
  {
    const auto threads = static_cast<std::size_t>(omp_get_num_threads());
    const auto self = static_cast<std::size_t>(omp_get_thread_num());
    const std::size_t begin = bytes * self / threads, end = bytes * (self + 1) / threads;
    std::memcpy(to + begin, from + begin, end - begin);
  }
}

Buffer touched(const Device& device, std::int64_t bytes) {
  const Buffer buffer = device.alloc(DType::u8, {bytes});
  CommandEncoder encoder(device);
  encoder.fill(buffer, 0.0f);
  encoder.commit_and_wait();
  return buffer;
}

}  // namespace

Timing time_calls(const std::function<void()>& work, double seconds) {
  work();
  const int repeats = std::max(1, static_cast<int>(2e-4 / seconds_of(work, 1)));
  std::vector<double> found;
  for (double total = 0.0; total < seconds || found.size() < 7;) {
    found.push_back(seconds_of(work, repeats));
    total += found.back() * repeats;
  }
  std::sort(found.begin(), found.end());
  return {found[found.size() / 2], found.front()};
}

Timing copy_bandwidth(double traffic) {
  constexpr std::int64_t kLargest = std::int64_t{512} << 20;
  static const Device device = Device::cpu();
  static const Buffer from = touched(device, kLargest), to = touched(device, kLargest);
  const std::int64_t bytes =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(traffic / 2.0), 4096, kLargest);
  const Buffer part = from.slice(0, bytes), target = to.slice(0, bytes);
  CommandEncoder encoder(device);
  const Timing by_parts = time_calls(
      [&] { copy_by_parts(part.host_bytes(), target.host_bytes(), static_cast<std::size_t>(bytes)); }, 0.1);
  const Timing by_kernel = time_calls(
      [&] {
        encoder.copy(part, target);
        encoder.commit_and_wait();
      },
      0.1);
  const auto moved = 2.0 * static_cast<double>(bytes);
  return {moved / std::min(by_parts.median, by_kernel.median),
          moved / std::min(by_parts.best, by_kernel.best)};
}

}  // namespace mixtape::testing
