// What every op's bench does: buffers, warm-up, timing, bytes per second beside a copy's.
#pragma once

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <functional>

#include "mixtape/runtime/command_encoder.h"
#include "mixtape/testing/copy_bandwidth.h"
#include "mixtape/testing/host_tensor.h"

// OP_BENCH(function, case, arguments...): a row of the bench. The case's name starts with the dtype:
// f32_512x1024.
#define OP_BENCH(function, name, ...)            \
  BENCHMARK_CAPTURE(function, name, __VA_ARGS__) \
      ->UseManualTime()                          \
      ->Iterations(1)                            \
      ->Unit(benchmark::kMicrosecond)

namespace mixtape::testing {

class OpBench {
 public:
  explicit OpBench(benchmark::State& state) : state_(state), device_(Device::cpu()) {}

  const Device& device() const { return device_; }
  // Other numbers on every call: a loss between two equal rows is no loss's usual case.
  Buffer random(DType dtype, const Shape& shape, double scale = 1.0) const {
    return upload(device_, random_tensor(dtype, shape, ++seed_, scale));
  }
  Buffer output(DType dtype, const Shape& shape) const { return device_.alloc(dtype, shape); }  // touched

  // Times `work` in real time; `bytes` is the least traffic of one call (each input read once, each output
  // written once), `flops` its arithmetic. The row's time is the median; the copy bandwidth is measured
  // before and after, with the same traffic, and the better one counts.
  void run(const std::function<void(CommandEncoder&)>& work, std::size_t bytes, double flops = 0.0) const {
    CommandEncoder encoder(device_);
    const auto traffic = static_cast<double>(bytes);
    for ([[maybe_unused]] auto _ : state_) {
      const Timing before = copy_bandwidth(traffic);
      const Timing found = time_calls(
          [&] {
            work(encoder);
            encoder.commit_and_wait();
          },
          0.3);
      const Timing after = copy_bandwidth(traffic);
      state_.SetIterationTime(found.median);
      state_.counters["best_us"] = found.best * 1e6;
      state_.counters["GB/s"] = traffic / found.median / 1e9;
      state_.counters["copy_GB/s"] = std::max(before.median, after.median) / 1e9;
      state_.counters["%copy"] = 100.0 * traffic / found.median / std::max(before.median, after.median);
      state_.counters["%copy_best"] = 100.0 * traffic / found.best / std::max(before.best, after.best);
      state_.counters["GFLOP/s"] = flops / found.median / 1e9;
    }
  }

 private:
  benchmark::State& state_;
  Device device_;
  mutable std::uint64_t seed_ = 0;
};

}  // namespace mixtape::testing
