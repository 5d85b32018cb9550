#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <utility>

#include "mixtape/runtime/buffer.h"
#include "mixtape/runtime/checks.h"
#include "mixtape/runtime/command_encoder.h"
#include "mixtape/runtime/device.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Values = std::vector<float>;
constexpr auto kInvalid = ErrorCode::invalid_argument;
constexpr DType kAllDtypes[] = {DType::f32, DType::bf16, DType::f16, DType::i32,
                                DType::u32, DType::u8,   DType::u16};

class Runtime : public ::testing::Test {
 protected:
  Device device = Device::cpu();
  CommandEncoder encoder{device};
};
using Memory = Runtime;

TEST_F(Memory, AllocIsZeroFilledEvenWhereMemoryIsReused) {
  for (const DType dtype : kAllDtypes) {
    for (const std::int64_t n : {0, 1, 1000, 3'000'000}) {
      {
        const testing::Poison poison(device);
        device.alloc_uninitialized(dtype, {n});
      }
      const testing::HostTensor t = testing::download(device.alloc(dtype, {n}));
      ASSERT_EQ(static_cast<std::int64_t>(t.values.size()), n);
      ASSERT_TRUE(std::all_of(t.values.begin(), t.values.end(), [](double v) { return v == 0.0; })) << dtype;
    }
  }
}

TEST_F(Memory, PoisonIsNan) {
  const testing::Poison poison(device);
  for (const float v : device.alloc_uninitialized(DType::f32, {100}).to_vector<float>())
    EXPECT_TRUE(std::isnan(v));
  for (const bf16 v : device.alloc_uninitialized(DType::bf16, {100}).to_vector<bf16>())
    EXPECT_TRUE(std::isnan(static_cast<float>(v)));
}

TEST_F(Memory, LiveAndPeakBytesFollowTheBuffers) {
  const std::size_t before = device.memory_stats().live_bytes;
  device.reset_peak();
  {
    const Buffer a = device.alloc(DType::f32, {1024});
    const Buffer view = a.slice(0, 10);
    EXPECT_EQ(device.memory_stats().live_bytes, before + 4096);
    const Buffer b = device.alloc(DType::u8, {1 << 20});
    EXPECT_EQ(device.memory_stats().live_bytes, before + 4096 + (1 << 20));
  }
  EXPECT_EQ(device.memory_stats().live_bytes, before);
  EXPECT_EQ(device.memory_stats().peak_bytes, before + 4096 + (1 << 20));
  device.reset_peak();
  EXPECT_EQ(device.memory_stats().peak_bytes, before);
}

TEST_F(Memory, ViewKeepsMemoryAlive) {
  Buffer view;
  {
    const Buffer a = Buffer::from(device, {4}, Values{1, 2, 3, 4});
    EXPECT_TRUE(a.is_unique());
    view = a.slice(2, 4);
    EXPECT_FALSE(a.is_unique());
  }
  EXPECT_EQ(view.to_vector<float>(), (Values{3, 4}));
  EXPECT_TRUE(view.is_unique());
}

TEST_F(Memory, ManySizesInAnyOrderNeverOverlap) {
  std::vector<Buffer> kept;
  for (std::uint32_t i = 0; i < 400; ++i) {
    const std::int64_t n = 1 + (i * 7919) % 5000;
    kept.push_back(device.alloc_uninitialized(DType::u32, {n}));
    std::vector<std::uint32_t> fill(static_cast<std::size_t>(n), i);
    kept.back().copy_from<std::uint32_t>(fill);
    if (i % 3 == 0) kept.erase(kept.begin() + i % static_cast<std::uint32_t>(kept.size()));
  }
  for (const Buffer& b : kept) {
    const auto v = b.to_vector<std::uint32_t>();
    EXPECT_EQ(std::count(v.begin(), v.end(), v[0]), b.numel());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.host_bytes()) % 64, 0u);
  }
}

TEST_F(Memory, TooLargeIsOutOfMemory) {
  MIXTAPE_EXPECT_ERROR(device.alloc(DType::f32, {std::int64_t{1} << 62}), ErrorCode::out_of_memory,
                       "more bytes than 64 bits can count");
  MIXTAPE_EXPECT_ERROR(device.alloc_uninitialized(DType::u8, {INT64_MAX}), ErrorCode::out_of_memory,
                       "9223372036854775807 bytes");
  MIXTAPE_EXPECT_ERROR(device.alloc_uninitialized(DType::f32, {std::int64_t{1} << 50}),
                       ErrorCode::out_of_memory, "are live");
  const Device sim = Device::open("sim");
  MIXTAPE_EXPECT_ERROR(sim.alloc(DType::u8, {INT64_MAX}), ErrorCode::out_of_memory,
                       "u8[9223372036854775807]");
  const Buffer still_works = device.alloc(DType::f32, {16});
  EXPECT_EQ(still_works.numel(), 16);
}

TEST_F(Memory, Reshape) {
  const Buffer a = Buffer::from(device, {2, 3}, Values{1, 2, 3, 4, 5, 6});
  EXPECT_EQ(a.reshape({3, 2}).to_vector<float>(), a.to_vector<float>());
  EXPECT_TRUE(overlap(a, a.reshape({6})));
  MIXTAPE_EXPECT_ERROR(a.reshape({4}), kInvalid, "reshape: f32[2,3] has 6 elements, expected 4 for [4]");
  MIXTAPE_EXPECT_ERROR(a.reshape({0}), kInvalid, "expected 0");
  MIXTAPE_EXPECT_ERROR(Buffer().reshape({1}), kInvalid, "reshape: buffer is null");
  MIXTAPE_EXPECT_ERROR(Buffer().slice(0, 0), kInvalid, "slice: buffer is null");
}

TEST_F(Memory, Slice) {
  const Buffer a = Buffer::from(device, {4, 2}, Values{0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(a.slice(1, 3).to_vector<float>(), (Values{2, 3, 4, 5}));
  EXPECT_EQ(a.slice(1, 4).slice(1, 2).to_vector<float>(), (Values{4, 5}));
  EXPECT_EQ(a.slice(4, 4).numel(), 0);
  EXPECT_TRUE(overlap(a.slice(0, 2), a.slice(1, 3)));
  EXPECT_FALSE(overlap(a.slice(0, 2), a.slice(2, 4)));
  EXPECT_FALSE(overlap(a.slice(2, 2), a));
  EXPECT_EQ(device.alloc(DType::f32, {0, 3}).slice(0, 0).shape(), (Shape{0, 3}));
  MIXTAPE_EXPECT_ERROR(a.slice(3, 5), kInvalid, "slice: [3,5) is outside the first axis of f32[4,2]");
  MIXTAPE_EXPECT_ERROR(a.slice(-1, 2), kInvalid, "[-1,2)");
  MIXTAPE_EXPECT_ERROR(a.slice(3, 2), kInvalid, "[3,2)");
  MIXTAPE_EXPECT_ERROR(device.alloc(DType::f32, {}).slice(0, 0), kInvalid, "no axis to slice");
}

TEST_F(Memory, FromAList) {
  const Buffer f = Buffer::from(device, {2}, {1.5f, 2.0f}), i = Buffer::from(device, {2, 1}, {1, 2});
  EXPECT_EQ(f.to_vector<float>(), (Values{1.5f, 2.0f}));
  EXPECT_EQ(i.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(Buffer::from(device, {1}, {7u}).dtype(), DType::u32);
  MIXTAPE_EXPECT_ERROR(Buffer::from(device, {3}, {1, 2}), kInvalid, "got 2 values, expected 3");
}

TEST_F(Memory, HostCopiesCheckDtypeAndCount) {
  const Buffer a = device.alloc(DType::f32, {3});
  MIXTAPE_EXPECT_ERROR(a.to_vector<bf16>(), kInvalid, "f32[3] holds f32, expected bf16");
  MIXTAPE_EXPECT_ERROR(a.copy_from<float>(Values{1, 2}), kInvalid, "got 2 values, expected 3 for f32[3]");
  MIXTAPE_EXPECT_ERROR(a.host_data<std::uint32_t>(), kInvalid, "expected u32");
  MIXTAPE_EXPECT_ERROR(Buffer::from(device, {2, 2}, Values{1}), kInvalid, "got 1 values, expected 4");
  MIXTAPE_EXPECT_ERROR(Buffer().to_vector<float>(), kInvalid, "null");
  MIXTAPE_EXPECT_ERROR(Buffer().host_bytes(), kInvalid, "null");
  MIXTAPE_EXPECT_ERROR(Buffer().device(), kInvalid, "null");
  EXPECT_EQ(str(Buffer(), " ", a), "null f32[3]");
}

TEST_F(Memory, ThreadsShareADevice) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  const std::size_t before = device.memory_stats().live_bytes;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      CommandEncoder own(device);
      for (int i = 0; i < 200; ++i) {
        const Buffer b = device.alloc_uninitialized(DType::f32, {1 + i * 13});
        own.fill(b, static_cast<float>(t));
        own.commit_and_wait();
        for (const float v : b.to_vector<float>()) wrong += v != static_cast<float>(t);
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(device.memory_stats().live_bytes, before);
}

TEST_F(Runtime, CopyEveryDtype) {
  for (const DType dtype : kAllDtypes) {
    for (const std::int64_t n : {0, 1, 1000, 700'001}) {
      const testing::HostTensor t = testing::random_indices({n}, 3, 100, dtype);
      const Buffer from = testing::upload(device, t);
      const testing::Poison poison(device);
      const Buffer to = device.alloc_uninitialized(dtype, {n, 1});
      encoder.copy(from, to);
      encoder.commit_and_wait();
      ASSERT_EQ(testing::download(to).values, t.values) << dtype;
    }
  }
  const Buffer a = device.alloc(DType::f32, {4});
  MIXTAPE_EXPECT_ERROR(encoder.copy(a, a), kInvalid, "share memory");
  MIXTAPE_EXPECT_ERROR(encoder.copy(a.slice(0, 2), a.slice(1, 3)), kInvalid, "share memory");
  MIXTAPE_EXPECT_ERROR(encoder.copy(a, device.alloc(DType::f32, {5})), kInvalid,
                       "expected equal dtypes and counts");
  MIXTAPE_EXPECT_ERROR(encoder.copy(a, device.alloc(DType::i32, {4})), kInvalid, "destination is i32[4]");
  MIXTAPE_EXPECT_ERROR(encoder.copy(a, Buffer()), kInvalid, "destination is null");
}

TEST_F(Runtime, FillEveryDtype) {
  for (const DType dtype : kAllDtypes) {
    const testing::Poison poison(device);
    const Buffer whole = device.alloc_uninitialized(dtype, {700'003});
    const Buffer b = whole.slice(1, 700'002);
    const float value = is_value(dtype) ? -2.5f : 0.0f;
    encoder.fill(b, value);
    encoder.commit_and_wait();
    const testing::HostTensor t = testing::download(b);
    ASSERT_TRUE(std::all_of(t.values.begin(), t.values.end(), [&](double v) { return v == value; })) << dtype;
    const std::vector<std::byte> last = testing::download_bytes(whole.slice(700'002, 700'003));
    EXPECT_EQ(last, std::vector<std::byte>(size_of(dtype), std::byte{0xff})) << dtype;  // untouched
  }
  MIXTAPE_EXPECT_ERROR(encoder.fill(device.alloc(DType::u32, {2}), 1.0f), kInvalid,
                       "fill: u32[2] takes only 0, got 1");
  MIXTAPE_EXPECT_ERROR(encoder.fill(Buffer(), 0.0f), kInvalid, "fill: destination is null");
}

TEST_F(Runtime, AccumulateRoundsOnce) {
  for (const DType dtype : testing::kValueDtypes) {
    const testing::HostTensor a = testing::random_tensor(dtype, {70'001}, 1);
    const testing::HostTensor b = testing::random_tensor(dtype, {70'001}, 2);
    const Buffer sum = testing::upload(device, a);
    encoder.accumulate(testing::upload(device, b), sum);
    encoder.commit_and_wait();
    std::vector<double> wanted = a.values;
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] += b.values[i];
    EXPECT_EQ(testing::download(sum).values, testing::make_tensor(dtype, a.shape, wanted).values) << dtype;
  }
  const Buffer f = device.alloc(DType::f32, {4});
  MIXTAPE_EXPECT_ERROR(encoder.accumulate(f, device.alloc(DType::bf16, {4})), kInvalid,
                       "destination is bf16[4]");
  const Buffer u = device.alloc(DType::u32, {4});
  MIXTAPE_EXPECT_ERROR(encoder.accumulate(u, u), kInvalid, "expected equal value dtypes");
}

// dst += dst doubles; the encoder does not refuse it.
TEST_F(Runtime, AccumulateOntoItself) {
  const Buffer a = Buffer::from(device, {3}, Values{1, 2, 3});
  encoder.accumulate(a, a);
  encoder.commit_and_wait();
  EXPECT_EQ(a.to_vector<float>(), (Values{2, 4, 6}));
}

TEST_F(Runtime, UserKernel) {
  device.kernels().register_host("runtime_test_affine", [](const HostCall& call) {
    const float slope = call.params<float>();
    for (std::int64_t i = 0; i < call.writes[0].numel(); ++i)
      call.write<float>(0)[i] = slope * call.read<float>(0)[i];
  });
  EXPECT_TRUE(device.kernels().has("runtime_test_affine"));
  const Buffer x = Buffer::from(device, {2}, Values{1, 2});
  const Buffer y = device.alloc(DType::f32, {2});
  encoder.encode(
      {.kernel = "runtime_test_affine", .params = params_bytes(3.0f), .reads = {x}, .writes = {y}});
  encoder.commit_and_wait();
  EXPECT_EQ(y.to_vector<float>(), (Values{3, 6}));
  const HostKernel nothing = [](const HostCall&) {};
  MIXTAPE_EXPECT_ERROR(device.kernels().register_host("runtime_test_affine", nothing), kInvalid,
                       "exists already");
  MIXTAPE_EXPECT_ERROR(device.kernels().register_host("copy", nothing), kInvalid,
                       "kernel 'copy' exists already");
  MIXTAPE_EXPECT_ERROR(device.kernels().register_source("a", "b"), ErrorCode::not_supported,
                       "not source text");
  encoder.encode({.kernel = "runtime_test_affine", .params = params_bytes(3.0), .reads = {x}, .writes = {y}});
  MIXTAPE_EXPECT_ERROR(encoder.wait(), kInvalid, "runtime_test_affine: got 8 parameter bytes, expected 4");
}

TEST_F(Runtime, EmptyDispatchRunsNothing) {
  int runs = 0;
  device.kernels().register_host("counts_its_runs", [&](const HostCall&) { ++runs; });
  const Buffer empty = device.alloc(DType::f32, {0, 3}),
               counts = Buffer::from<std::uint32_t>(device, {2}, {7, 8});
  const Buffer sum = Buffer::from(device, {2}, Values{1, 2}), added = Buffer::from(device, {2}, Values{3, 4});
  encoder.encode(
      {.kernel = "counts_its_runs", .params = {}, .reads = {sum}, .writes = {empty, empty.slice(0, 0)}});
  encoder.encode({.kernel = "counts_its_runs",
                  .params = {},
                  .reads = {empty},
                  .writes = {sum, empty, counts, added},
                  .is_empty = true,
                  .adds = 0b1000});
  encoder.commit_and_wait();
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(sum.to_vector<float>(), (Values{0, 0}));
  EXPECT_EQ(counts.to_vector<std::uint32_t>(), (std::vector<std::uint32_t>{0, 0}));
  EXPECT_EQ(added.to_vector<float>(), (Values{3, 4}));
  MIXTAPE_EXPECT_ERROR(
      encoder.encode({.kernel = "no_such_kernel", .params = {}, .reads = {}, .writes = {empty}}),
      ErrorCode::not_supported, "'no_such_kernel' does not exist");
  encoder.encode(
      {.kernel = "counts_its_runs", .params = {}, .reads = {sum}, .writes = {}});  // for its side effect
  encoder.commit_and_wait();
  EXPECT_EQ(runs, 1);
}

TEST_F(Runtime, UnknownKernelAndNullBuffer) {
  const Buffer x = device.alloc(DType::f32, {2});
  MIXTAPE_EXPECT_ERROR(encoder.encode({.kernel = "no_such", .params = {}, .reads = {x}, .writes = {x}}),
                       ErrorCode::not_supported, "kernel 'no_such' does not exist on cpu");
  MIXTAPE_EXPECT_ERROR(encoder.encode({.kernel = "copy", .params = {}, .reads = {Buffer()}, .writes = {x}}),
                       kInvalid, "copy: a buffer is null");
  MIXTAPE_EXPECT_ERROR(encoder.encode({.kernel = "copy", .params = {}, .reads = {x}, .writes = {Buffer()}}),
                       kInvalid, "copy: a buffer is null");
}

TEST_F(Runtime, ForeignBuffer) {
  const Device other = Device::open("sim");
  const Buffer here = device.alloc(DType::f32, {2}), there = other.alloc(DType::f32, {2});
  MIXTAPE_EXPECT_ERROR(encoder.copy(there, here), kInvalid, "copy: f32[2] is on sim, expected cpu");
  MIXTAPE_EXPECT_ERROR(encoder.copy(here, there), kInvalid, "copy: f32[2] is on sim, expected cpu");
  EXPECT_FALSE(device == other);
}

TEST_F(Runtime, OpenByName) {
  EXPECT_EQ(Device::open("cpu").name(), "cpu");
  EXPECT_TRUE(Device::open("cpu") == device);
  EXPECT_FALSE(device.description().empty());
  EXPECT_TRUE(Device::open("cpu:0") == device);
  for (const char* bad :
       {"", "gpu", "cpu:", "cpu:x", "cpu:-0", "cpu:1x", "cpu:99999999999", "CPU", "auto:0"}) {
    MIXTAPE_EXPECT_ERROR(Device::open(bad), kInvalid, str("device: '", bad, "' is unknown, expected "));
  }
  MIXTAPE_EXPECT_ERROR(Device::open("cpu:12"), ErrorCode::not_supported,
                       "cpu: processor 12 is not there, found 1");
}

// A backend that is never there: auto asks it first, goes on, and says why.
int asked_index = -1;
const bool absent_is_registered =
    register_backend("runtime_test_absent", 1000, [](int index) -> std::shared_ptr<Backend> {
      asked_index = index;
      fail(ErrorCode::not_supported, "runtime_test_absent: no driver");
    });

TEST_F(Runtime, AutoWalksTheBackendsAndKeepsEachReason) {
  ASSERT_TRUE(absent_is_registered);
  EXPECT_EQ(registered_backends().front(), "runtime_test_absent");
  EXPECT_FALSE(register_backend("runtime_test_absent", 1, nullptr));  // the first one stays
  std::vector<std::string> passed_over;
  const Device best = Device::open("auto", &passed_over);
  EXPECT_NE(best.name(), "sim");
  ASSERT_FALSE(passed_over.empty());
  EXPECT_EQ(passed_over.front(), "runtime_test_absent: no driver");
  EXPECT_TRUE(best == device || passed_over.size() == 1);
  EXPECT_EQ(asked_index, 0);
  MIXTAPE_EXPECT_ERROR(Device::open("runtime_test_absent:12"), ErrorCode::not_supported, "no driver");
  EXPECT_EQ(asked_index, 12);
}

TEST_F(Runtime, DevicesSayInWhatTheyDiffer) {
  const DeviceCaps cpu = device.caps(), sim = Device::open("sim").caps();
  EXPECT_TRUE(cpu.has_host_memory && cpu.wants_f32_logits && !cpu.rounds_decoded_f16);
  EXPECT_TRUE(!sim.has_host_memory && !sim.wants_f32_logits && sim.rounds_decoded_bf16 &&
              sim.rounds_decoded_f16);
  EXPECT_EQ(cpu.rows_per_block(100), 32);
  EXPECT_EQ(cpu.rows_per_block(64 * 40 + 1), 41);
  EXPECT_EQ(sim.rows_per_block(100), 8);
}

// A backend that counts what it is handed.
class Gathering final : public Backend {
 public:
  std::string name() const override { return "runtime_test_gathering"; }
  std::string description() const override { return "nothing"; }
  DeviceCaps caps() const override { return {}; }
  std::shared_ptr<mixtape::Memory> allocate(std::size_t, bool) override { return nullptr; }
  MemoryStats memory_stats() const override { return {}; }
  void reset_peak() override {}
  void poison_uninitialized(bool) override {}
  KernelRegistry& kernels() override { return Device::cpu().kernels(); }
  void run(const Dispatch&, ErrorSlot&) override { ++waiting; }
  void submit() override { submitted += std::exchange(waiting, 0); }
  void synchronize() override {}
  void read(mixtape::Memory&, std::size_t, void*, std::size_t) override {}
  void write(mixtape::Memory&, std::size_t, const void*, std::size_t) override {}
  int waiting = 0, submitted = 0;
};
const bool gathering_is_registered =
    register_backend("runtime_test_gathering", kNotAuto, [](int) { return std::make_shared<Gathering>(); });

TEST_F(Runtime, CommitHandsOverWhatTheBackendGathered) {
  ASSERT_TRUE(gathering_is_registered);
  const Device gathering_device = Device::open("runtime_test_gathering");
  auto& gathering = static_cast<Gathering&>(gathering_device.backend());
  CommandEncoder gathering_encoder(gathering_device);
  for (int i = 0; i < 2; ++i)
    gathering_encoder.encode({.kernel = "copy", .params = {}, .reads = {}, .writes = {}});
  EXPECT_EQ(gathering.submitted, 0);
  gathering_encoder.commit();
  EXPECT_EQ(gathering.submitted, 2);
}

void report(const HostCall& call) {
  for (const std::int64_t position : {9, 4, 7}) call.report_index(position, 100 + position, 50);
}
MIXTAPE_HOST_KERNEL("runtime_test_report", report);
void report_other(const HostCall& call) { call.report_index(0, 1, 1); }
MIXTAPE_HOST_KERNEL("runtime_test_report_other", report_other);
void throw_error(const HostCall& call) { fail(ErrorCode::device, call.kernel, ": broke"); }
MIXTAPE_HOST_KERNEL("runtime_test_throw", throw_error);

TEST_F(Runtime, IndexErrorNamesTheLowestPositionOfTheFirstKernel) {
  const auto run = [&](const char* kernel) {
    encoder.encode({.kernel = kernel, .params = {}, .reads = {}, .writes = {}});
  };
  run("runtime_test_report");
  run("runtime_test_report_other");
  MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::index_out_of_range,
                       "runtime_test_report: index 104 at position 4 is out of range, expected 0 to 49");
  EXPECT_NO_THROW(encoder.wait());  // forgotten
  run("runtime_test_report_other");
  MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::index_out_of_range, "position 0");
}

TEST_F(Runtime, ExceptionSurfacesAtWaitAndStopsTheRest) {
  const Buffer x = Buffer::from(device, {1}, Values{1});
  encoder.encode({.kernel = "runtime_test_throw", .params = {}, .reads = {}, .writes = {}});
  encoder.fill(x, 5.0f);
  EXPECT_EQ(x.to_vector<float>(), Values{1});
  MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::device, "runtime_test_throw: broke");
  encoder.fill(x, 5.0f);
  encoder.commit_and_wait();
  EXPECT_EQ(x.to_vector<float>(), Values{5});
}

// What a user's kernel may do wrong surfaces as an Error that names it.
TEST_F(Runtime, UserKernelsFaultsNameTheKernel) {
  const auto expect = [&](const std::string& name, HostKernel kernel, ErrorCode code, const char* text) {
    device.kernels().register_host(name, std::move(kernel));
    const Buffer x = device.alloc(DType::f32, {1});
    encoder.encode({.kernel = name, .params = {}, .reads = {x}, .writes = {x}});
    MIXTAPE_EXPECT_ERROR(encoder.wait(), code, name + text);
  };
  expect(
      "runtime_test_at", [](const HostCall&) { throw std::runtime_error("no luck"); }, ErrorCode::device,
      ": no luck");
  expect(
      "runtime_test_int", [](const HostCall&) { throw 3; }, ErrorCode::device, ": threw what is no");
  expect(
      "runtime_test_read", [](const HostCall& c) { c.read<float>(1); }, kInvalid,
      ": read(1) was asked for, expected less than 1");
  expect(
      "runtime_test_write", [](const HostCall& c) { c.write<float>(2); }, kInvalid,
      ": write(2) was asked for, expected less than 1");
}

TEST_F(Runtime, Checks) {
  const Buffer x = device.alloc(DType::f32, {2, 3});
  EXPECT_NO_THROW(check_values("op", "x", x));
  MIXTAPE_EXPECT_ERROR(check_values("op", "x", device.alloc(DType::f32, {})), kInvalid, "rank 1 or more");
  MIXTAPE_EXPECT_ERROR(check_values("op", "x", device.alloc(DType::u8, {2})), kInvalid, "op: x is u8[2]");
  MIXTAPE_EXPECT_ERROR(check_like("op", "y", Buffer(), "x", x), kInvalid,
                       "op: y is null, expected f32[2,3] like x");
  MIXTAPE_EXPECT_ERROR(check_is("op", "y", x, DType::f32, {3, 2}), kInvalid,
                       "op: y is f32[2,3], expected f32[3,2]");
  MIXTAPE_EXPECT_ERROR(check_not_empty("op", "y", device.alloc(DType::f32, {2, 0})), kInvalid,
                       "no dimension of 0");
  MIXTAPE_EXPECT_ERROR(check_indices("op", "ids", x), kInvalid, "op: ids is f32[2,3], expected u32 or i32");
  MIXTAPE_EXPECT_ERROR(check_no_overlap("op", "y", x, "x", x.slice(1, 2)), kInvalid,
                       "op: y shares memory with x");
  EXPECT_NO_THROW(check_no_overlap("op", "y", x.slice(0, 1), "x", x.slice(1, 2)));
}

}  // namespace
}  // namespace mixtape
