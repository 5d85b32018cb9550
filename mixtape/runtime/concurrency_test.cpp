// One device used by several threads at once. ./run tsan runs this under ThreadSanitizer, on the CPU only:
// the simulator's fibers are unknown to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <latch>
#include <thread>

#include "mixtape/backend/cpu/gemm.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Values = std::vector<float>;
constexpr int kThreads = 4;

// All start at once, so that first uses meet.
void in_threads(const std::function<void(int thread)>& body) {
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      body(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// With few cores a thread might otherwise be done before the next one starts.
void give_way(int round) {
  if (round % 10 == 0) std::this_thread::yield();
}

class Concurrency : public ::testing::TestWithParam<std::string> {
 protected:
  // Rounds of a test: the simulator is slow.
  int rounds(int n) const { return GetParam() == "sim" ? std::max(1, n / 20) : n; }
};
INSTANTIATE_TEST_SUITE_P(Devices, Concurrency, ::testing::ValuesIn(testing::test_device_names()));

TEST_P(Concurrency, OpenGivesTheSameDevice) {
  std::vector<std::string> names(kThreads);
  std::atomic<int> different = 0;
  in_threads([&](int t) {
    const Device device = Device::open(GetParam());
    names[static_cast<std::size_t>(t)] = device.name() + device.description();
    different += !(device == Device::open(GetParam()));
  });
  EXPECT_EQ(different, 0);
  EXPECT_EQ(std::count(names.begin(), names.end(), names[0]), kThreads);
}

TEST_P(Concurrency, EncodersOfTheirOwn) {
  const Device device = Device::open(GetParam());
  const std::size_t live = device.memory_stats().live_bytes;
  std::atomic<int> wrong = 0;
  in_threads([&](int t) {
    CommandEncoder encoder(device);
    for (int i = 0; i < rounds(200); ++i) {
      give_way(i);
      const std::int64_t n = 1 + i * 13 % 700;
      const Buffer a = device.alloc_uninitialized(DType::f32, {n}), b = device.alloc(DType::f32, {n});
      encoder.fill(a, static_cast<float>(t + 1));
      encoder.accumulate(a, b);
      encoder.accumulate(a, b);
      encoder.copy(b, a);
      encoder.commit_and_wait();
      wrong += a.to_vector<float>() != Values(static_cast<std::size_t>(n), 2.0f * static_cast<float>(t + 1));
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(device.memory_stats().live_bytes, live);
}

// Memory that one thread made is read and freed by another.
TEST_P(Concurrency, BuffersPassBetweenThreads) {
  const Device device = Device::open(GetParam());
  const std::size_t live = device.memory_stats().live_bytes;
  std::vector<std::vector<Buffer>> made(kThreads);
  in_threads([&](int t) {
    for (int i = 0; i < rounds(300); ++i) {
      give_way(i);
      made[static_cast<std::size_t>(t)].push_back(Buffer::from(
          device, {1 + i % 97}, Values(static_cast<std::size_t>(1 + i % 97), static_cast<float>(t))));
    }
  });
  std::atomic<int> wrong = 0;
  in_threads([&](int t) {
    const auto from = static_cast<std::size_t>((t + 1) % kThreads);
    for (Buffer& b : made[from]) {
      const Buffer mine = std::exchange(b, Buffer());
      wrong += mine.slice(0, 1).to_vector<float>()[0] != static_cast<float>(from);
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(device.memory_stats().live_bytes, live);
}

// Shared by all, read only.
TEST_P(Concurrency, OneInputManyReaders) {
  const Device device = Device::open(GetParam());
  const Buffer shared = Buffer::from(device, {3}, Values{1, 2, 3});
  std::atomic<int> wrong = 0;
  in_threads([&](int) {
    CommandEncoder encoder(device);
    for (int i = 0; i < rounds(200); ++i) {
      give_way(i);
      const Buffer view = shared.slice(1, 3);
      const Buffer mine = device.alloc_uninitialized(DType::f32, {2});
      encoder.copy(view, mine);
      encoder.commit_and_wait();
      wrong += mine.to_vector<float>() != Values{2, 3};
    }
  });
  EXPECT_EQ(wrong, 0);
}

// One thread does nothing but look.
TEST_P(Concurrency, StatsWhileAllocating) {
  const Device device = Device::open(GetParam());
  const std::size_t live = device.memory_stats().live_bytes;
  std::atomic<int> wrong = 0;
  in_threads([&](int t) {
    for (int i = 0; i < rounds(500); ++i) {
      give_way(i);
      const Buffer mine = t == 0 ? Buffer() : device.alloc(DType::u8, {64 * t});
      if (t != 0) continue;
      const MemoryStats stats = device.memory_stats();
      wrong += stats.live_bytes < live || stats.peak_bytes < stats.live_bytes;
      if (i % 50 == 0) device.reset_peak();
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(device.memory_stats().live_bytes, live);
}

void report(const HostCall& call) { call.report_index(call.params<std::int64_t>(), -1, 8); }
MIXTAPE_HOST_KERNEL("concurrency_test_report", report);

TEST(ConcurrencyCpu, ErrorsStayWithTheirEncoder) {
  const Device device = Device::cpu();
  std::atomic<int> wrong = 0;
  in_threads([&](int t) {
    CommandEncoder encoder(device);
    const std::string wanted = str("position ", t, " ");
    for (int i = 0; i < 100; ++i) {
      give_way(i);
      encoder.encode({.kernel = "concurrency_test_report",
                      .params = params_bytes(std::int64_t{t}),
                      .reads = {},
                      .writes = {}});
      try {
        encoder.wait();
        ++wrong;
      } catch (const Error& error) {
        wrong += std::string(error.what()).find(wanted) == std::string::npos;
      }
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ConcurrencyCpu, KernelsAreRegisteredWhileOthersRun) {
  const Device device = Device::cpu();
  std::atomic<int> wrong = 0;
  in_threads([&](int t) {
    CommandEncoder encoder(device);
    const Buffer y = device.alloc(DType::f32, {1});
    for (int i = 0; i < 50; ++i) {
      give_way(i);
      const std::string name = str("concurrency_test_", t, "_", i);
      const auto value = static_cast<float>(100 * t + i);
      device.kernels().register_host(name, [value](const HostCall& call) { *call.write<float>(0) = value; });
      wrong += !device.kernels().has(name) || device.kernels().has(name + "?");
      encoder.encode({.kernel = name, .params = {}, .reads = {}, .writes = {y}});
      encoder.commit_and_wait();
      wrong += y.to_vector<float>()[0] != value;
    }
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ConcurrencyCpu, OneNameIsTakenOnce) {
  const Device device = Device::cpu();
  std::atomic<int> taken = 0;
  in_threads([&](int) {
    try {
      device.kernels().register_host("concurrency_test_one_name", [](const HostCall&) {});
      ++taken;
    } catch (const Error&) {
    }
  });
  EXPECT_EQ(taken, 1);
}

// Each thread makes its own primitives; the first products meet.
TEST(ConcurrencyCpu, MatrixProducts) {
  constexpr std::int64_t kSize = 40;
  const Values a(kSize * kSize, 0.5f), b(kSize * kSize, 2.0f);
  const cpu::Gemm gemm{.m = kSize, .n = kSize, .k = kSize, .lda = kSize, .ldb = kSize, .ldc = kSize};
  std::atomic<int> wrong = 0;
  in_threads([&](int) {
    Values c(kSize * kSize);
    for (int i = 0; i < 20; ++i) {
      give_way(i);
      cpu::gemm(gemm, a.data(), b.data(), c.data());
      wrong += c != Values(kSize * kSize, static_cast<float>(kSize));
    }
  });
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mixtape
