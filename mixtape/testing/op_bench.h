// What every op's bench does: buffers, warm-up, timing, bytes per second.
#pragma once

#include <benchmark/benchmark.h>

#include <functional>

#include "mixtape/runtime/command_encoder.h"
#include "mixtape/testing/host_tensor.h"

namespace mixtape::testing {

class OpBench {
 public:
  explicit OpBench(benchmark::State& state) : state_(state), device_(Device::cpu()) {}

  const Device& device() const { return device_; }
  Buffer random(DType dtype, const Shape& shape, double scale = 1.0) const {
    return upload(device_, random_tensor(dtype, shape, 1, scale));
  }
  Buffer output(DType dtype, const Shape& shape) const { return device_.alloc(dtype, shape); }  // touched

  // Times `work` until the bench has enough samples; `bytes` is the least traffic of one call (each input
  // read once, each output written once), `flops` its arithmetic.
  void run(const std::function<void(CommandEncoder&)>& work, std::size_t bytes, double flops = 0.0) const {
    CommandEncoder encoder(device_);
    work(encoder);
    encoder.commit_and_wait();
    for ([[maybe_unused]] auto _ : state_) {
      work(encoder);
      encoder.commit_and_wait();
    }
    state_.SetBytesProcessed(static_cast<std::int64_t>(state_.iterations()) *
                             static_cast<std::int64_t>(bytes));
    if (flops > 0.0) {
      state_.counters["FLOPS"] = benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
    }
  }

 private:
  benchmark::State& state_;
  Device device_;
};

}  // namespace mixtape::testing
