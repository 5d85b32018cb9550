// Members of a group meet, add up, and never wait for one that has failed.
#include "mixtape/runtime/device_group.h"

#include <barrier>

#include "mixtape/testing/check_op.h"
#include "mixtape/testing/named_processor.h"

namespace mixtape {
namespace {

using Values = std::vector<float>;

std::vector<Device> processors(std::size_t n) { return std::vector<Device>(n, Device::cpu()); }

// 1e8 + 1 is 1e8 in f32: another order gives another sum.
TEST(DeviceGroup, AddsUpInTheOrderOfTheRanks) {
  DeviceGroup group(processors(3));
  EXPECT_EQ(group.way(), "host memory");
  EXPECT_EQ(group.name(), "cpu,cpu,cpu");
  std::array<Values, 3> sums;
  std::array<double, 3> totals{};
  group.run([&](Communicator& c) {
    ASSERT_EQ(c.size(), 3);
    const auto rank = static_cast<std::size_t>(c.rank());
    CommandEncoder encoder(Device::cpu());
    const Buffer a = Buffer::from(Device::cpu(), {2}, Values{Values{1e8f, 1.0f, -1e8f}[rank], 1.0f}),
                 b = Buffer::from(Device::cpu(), {1, 2}, Values{1.0f, Values{1.0f, -1e8f, 1e8f}[rank]});
    c.all_reduce_sum(encoder, {a, b});
    encoder.commit_and_wait();
    sums[rank] = a.to_vector<float>();
    for (const float v : b.to_vector<float>()) sums[rank].push_back(v);
    totals[rank] = c.sum_of(static_cast<double>(rank + 1));
    EXPECT_TRUE(c.agrees(7));
  });
  for (const Values& sum : sums) EXPECT_EQ(sum, (Values{0.0f, 3.0f, 3.0f, 0.0f}));
  EXPECT_EQ(totals, (std::array<double, 3>{6.0, 6.0, 6.0}));
}

// More than the 64 MB that are added up at a time, in buffers that end elsewhere.
TEST(DeviceGroup, AddsUpManyElements) {
  constexpr std::int64_t kMany = (std::int64_t{1} << 24) + 5;
  DeviceGroup group(processors(2));
  std::array<bool, 2> same{};
  group.run([&](Communicator& c) {
    const float own = c.rank() == 0 ? 1.0f : 2.0f;
    CommandEncoder encoder(Device::cpu());
    const Buffer few = Device::cpu().alloc(DType::f32, {3}), many = Device::cpu().alloc(DType::f32, {kMany});
    encoder.fill(few, own);
    encoder.fill(many, 10.0f * own);
    c.all_reduce_sum(encoder, {few, many, Device::cpu().alloc(DType::f32, {0})});
    encoder.commit_and_wait();
    same[static_cast<std::size_t>(c.rank())] =
        few.to_vector<float>() == Values(3, 3.0f) && many.to_vector<float>() == Values(kMany, 30.0f);
  });
  EXPECT_TRUE(same[0] && same[1]);
}

TEST(DeviceGroup, OfOneIsThatDevice) {
  DeviceGroup group({Device::cpu()});
  const std::thread::id caller = std::this_thread::get_id();
  group.run([&](Communicator& c) {
    EXPECT_TRUE(std::this_thread::get_id() == caller);
    EXPECT_EQ(c.sum_of(2.5), 2.5);
    const Buffer b = Buffer::from(Device::cpu(), {1}, Values{4.0f});
    CommandEncoder encoder(Device::cpu());
    c.all_reduce_sum(encoder, {b});
    EXPECT_EQ(b.to_vector<float>(), Values{4.0f});
  });
}

TEST(DeviceGroup, DevicesOfTheirOwnMemory) {
  const std::vector<Device> devices = {Device::open("sim"), Device::open("sim:1"), Device::cpu()};
  DeviceGroup group(devices);
  std::array<float, 3> sums{};
  group.run([&](Communicator& c) {
    const auto rank = static_cast<std::size_t>(c.rank());
    CommandEncoder encoder(devices[rank]);
    const Buffer b = Buffer::from(devices[rank], {1}, Values{static_cast<float>(rank + 1)});
    c.all_reduce_sum(encoder, {b});
    encoder.commit_and_wait();
    sums[rank] = b.to_vector<float>()[0];
  });
  EXPECT_EQ(sums, (std::array<float, 3>{6.0f, 6.0f, 6.0f}));
}

TEST(DeviceGroup, RefusesWhatIsNoGroup) {
  MIXTAPE_EXPECT_ERROR(DeviceGroup({}), ErrorCode::invalid_argument, "devices: found none");
  const Device sim = Device::open("sim");
  MIXTAPE_EXPECT_ERROR(DeviceGroup({sim, Device::cpu(), sim}), ErrorCode::invalid_argument,
                       "devices: sim is named twice, expected different ones");
}

class DeviceGroupFailure : public ::testing::TestWithParam<std::int64_t> {};  // the rank that fails
INSTANTIATE_TEST_SUITE_P(Ranks, DeviceGroupFailure, ::testing::Values(0, 1, 2));

TEST_P(DeviceGroupFailure, IsPassedOnAndNobodyWaits) {
  DeviceGroup group(processors(3));
  std::atomic<int> found = 0;
  const auto work = [&](Communicator& c) {
    c.meet();
    if (c.rank() == GetParam()) fail(ErrorCode::out_of_memory, "no room on rank ", c.rank());
    try {
      for (;;) c.meet();
    } catch (const Error& error) {
      found += error.code() == ErrorCode::out_of_memory;
      throw;
    }
  };
  MIXTAPE_EXPECT_ERROR(group.run(work), ErrorCode::out_of_memory, str("no room on rank ", GetParam()));
  EXPECT_EQ(found, 2);
  group.run([](Communicator& c) { c.meet(); });  // the group goes on
}

TEST(DeviceGroup, ErrorsAfterTheLastSumAreFoundToo) {
  DeviceGroup group(processors(2));
  std::atomic<bool> is_done = false;
  const auto work = [&](Communicator& c) {
    c.meet();
    if (c.rank() == 0) {
      is_done = true;
      return;
    }
    while (!is_done) std::this_thread::yield();
    fail(ErrorCode::device, "the card was lost");
  };
  MIXTAPE_EXPECT_ERROR(group.run(work), ErrorCode::device, "the card was lost");
}

TEST(DeviceGroup, EndsWithItsFirstDevice) {
  DeviceGroup group(processors(2));
  bool was_told = false;
  group.run([&](Communicator& c) {
    if (c.rank() == 0) return;
    try {
      c.sum_of(1.0);
    } catch (const Error& error) {
      was_told = error.code() == ErrorCode::interrupted;
      throw;
    }
  });
  EXPECT_TRUE(was_told);
  const auto work = [](Communicator& c) {
    if (c.rank() == 0) c.meet();
  };
  MIXTAPE_EXPECT_ERROR(group.run(work), ErrorCode::interrupted, "another member of the run has ended");
}

TEST(DeviceGroup, RefusesSumsOfDifferentThings) {
  DeviceGroup group(processors(2));
  const auto values = [](Communicator& c) {
    std::vector<double> some(static_cast<std::size_t>(c.rank() + 1));
    c.all_reduce_sum(some);
  };
  MIXTAPE_EXPECT_ERROR(group.run(values), ErrorCode::invalid_argument, "as many");
  const auto sum = [](DType dtype, bool differ) {
    return [=](Communicator& c) {
      CommandEncoder encoder(Device::cpu());
      c.all_reduce_sum(encoder, {Device::cpu().alloc(dtype, {differ ? c.rank() + 1 : 1})});
    };
  };
  MIXTAPE_EXPECT_ERROR(group.run(sum(DType::f32, true)), ErrorCode::invalid_argument, "expected as many");
  MIXTAPE_EXPECT_ERROR(group.run(sum(DType::bf16, false)), ErrorCode::invalid_argument,
                       "a buffer is bf16[1], expected f32");
}

// The CPU under another name (named_processor.h), whose devices have a way of their own to add up.
struct Sums final : PeerSums {
  Sums(std::size_t devices, int& count_of_aborts)
      : meet(static_cast<std::ptrdiff_t>(devices)), parts(devices), aborts(count_of_aborts) {}
  std::string name() const override { return "wire"; }
  void join() override {}
  std::vector<std::byte> invitation() override { return {}; }
  void join(std::span<const std::byte>, std::int64_t, std::int64_t) override {}
  void add_up(std::size_t rank, Memory& memory, std::size_t offset, std::size_t count) override {
    auto* mine = reinterpret_cast<float*>(memory.host_data() + offset);
    parts[rank] = Values(mine, mine + count);
    meet.arrive_and_wait();
    for (std::size_t i = 0; i < count; ++i) mine[i] = parts[0][i] + parts[1][i];
    meet.arrive_and_wait();
  }
  void abort() override { ++aborts; }
  std::barrier<> meet;
  std::vector<Values> parts;
  int& aborts;
};

int aborts_of_sums = 0;

std::unique_ptr<PeerSums> join(const std::vector<Device>& devices) {
  for (const Device& d : devices) {
    if (!d.name().starts_with("wired")) return nullptr;
    if (d.name() == "wired:2") fail(ErrorCode::not_supported, "wired:2 hangs by no wire");
  }
  return std::make_unique<Sums>(devices.size(), aborts_of_sums);
}

const bool wired =
    register_backend("wired", kNotAuto,
                     [](int index) { return std::make_shared<testing::NamedProcessor>("wired", index); }) &&
    register_peer_sums(join);

TEST(DeviceGroup, TakesTheDevicesOwnWay) {
  ASSERT_TRUE(wired);
  const std::vector<Device> devices = {Device::open("wired:0"), Device::open("wired:1")};
  DeviceGroup group(devices);
  EXPECT_EQ(group.way(), "wire");
  const auto add_up = [&](Communicator& c) {
    const Device& device = devices[static_cast<std::size_t>(c.rank())];
    CommandEncoder encoder(device);
    const Buffer a = Buffer::from(device, {2}, Values{1.0f, 2.0f}),
                 b = Buffer::from(device, {1}, Values{3.0f});
    c.all_reduce_sum(encoder, {a, b});
    encoder.commit_and_wait();
    EXPECT_EQ(a.to_vector<float>(), (Values{2.0f, 4.0f}));
    EXPECT_EQ(b.to_vector<float>(), (Values{6.0f}));
  };
  group.run(add_up);
  EXPECT_EQ(aborts_of_sums, 0);
  const auto lost = [&](Communicator& c) {
    if (c.rank() == 1) fail(ErrorCode::device, "lost");
    add_up(c);
  };
  MIXTAPE_EXPECT_ERROR(group.run(lost), ErrorCode::device, "lost");
  EXPECT_EQ(aborts_of_sums, 1);
  group.run(add_up);
}

TEST(DeviceGroup, SaysWhyItGoesThroughTheHost) {
  DeviceGroup group({Device::open("wired:0"), Device::open("wired:2")});
  EXPECT_EQ(group.way(), "host memory (wired:2 hangs by no wire)");
}

}  // namespace
}  // namespace mixtape
