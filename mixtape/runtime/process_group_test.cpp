// Members of several processes add up as those of one do.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <mutex>

#include "mixtape/runtime/device_group.h"
#include "mixtape/testing/check_op.h"
#include "mixtape/testing/named_processor.h"
#include "mixtape/testing/process_groups.h"

namespace mixtape {
namespace {

using Numbers = std::vector<float>;
using Devices = std::vector<std::vector<Device>>;

std::vector<Device> several_cpus(std::size_t n) { return std::vector<Device>(n, Device::cpu()); }

void expect_none_failed(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// What each member has after sums whose result depends on their order.
struct Outcome {
  Numbers sums;
  std::vector<double> values;
  bool operator==(const Outcome&) const = default;
};

class Outcomes {
 public:
  void add_up(Communicator& c) {
    const auto rank = static_cast<std::size_t>(c.rank());
    std::vector<double> values = {std::array{1e17, 1.0, -1e17, 3.0}[rank],
                                  0.1 * static_cast<double>(c.rank()), -0.0};
    c.all_reduce_sum(values);
    constexpr std::int64_t kMany = (std::int64_t{1} << 24) + 3;
    CommandEncoder encoder(Device::cpu());
    const Buffer few = Buffer::from(Device::cpu(), {2},
                                    Numbers{std::array{1e8f, 1.0f, -1e8f, 1.0f}[rank], -0.0f}),
                 many = Device::cpu().alloc(DType::f32, {kMany});
    encoder.fill(many, std::array{0.1f, 0.7f, 1e7f, -1e7f}[rank]);
    c.all_reduce_sum(encoder, {few, many});
    encoder.commit_and_wait();
    Numbers sums = few.to_vector<float>();
    const Numbers rest = many.to_vector<float>();
    EXPECT_EQ(rest, Numbers(kMany, rest[0]));
    sums.push_back(rest[0]);
    const std::lock_guard lock(mutex_);
    all_[c.rank()] = {sums, values};
  }
  const std::map<std::int64_t, Outcome>& all() const { return all_; }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, Outcome> all_;
};

TEST(ProcessGroup, AddsUpAsOneProcessDoes) {
  Outcomes one;
  DeviceGroup group(several_cpus(4));
  group.run([&](Communicator& c) { one.add_up(c); });
  for (const Devices& devices :
       {Devices{several_cpus(2), several_cpus(2)}, Devices{several_cpus(1), several_cpus(3)},
        Devices{several_cpus(1), several_cpus(1), several_cpus(1), several_cpus(1)}}) {
    Outcomes several;
    std::int64_t members = 0;
    std::mutex mutex;
    expect_none_failed(testing::run_processes(devices, [&](DeviceGroup& part) {
      EXPECT_EQ(part.size(), 4);
      EXPECT_EQ(part.name(), "cpu,cpu,cpu,cpu");
      EXPECT_EQ(part.way(), "host memory");
      EXPECT_EQ(part.is_first(), part.first_rank() == 0);
      part.run([&](Communicator& c) {
        EXPECT_EQ(c.size(), 4);
        several.add_up(c);
        EXPECT_TRUE(c.agrees(7));
      });
      const std::lock_guard lock(mutex);
      members += std::ssize(part.devices());
    }));
    EXPECT_EQ(members, 4);
    EXPECT_TRUE(several.all() == one.all());
  }
}

TEST(ProcessGroup, AFailureEndsAllProcesses) {
  for (const std::int64_t who : {0, 1, 2, 3}) {
    const auto errors = testing::run_processes({several_cpus(2), several_cpus(2)}, [who](DeviceGroup& group) {
      group.run([](Communicator& c) { c.meet(); });
      group.run([who](Communicator& c) {
        c.meet();
        if (c.rank() == who) fail(ErrorCode::out_of_memory, "no room on member ", who);
        for (;;) c.meet();
      });
    });
    const auto own = static_cast<std::size_t>(who / 2);
    EXPECT_EQ(errors[own], str("no room on member ", who));
    EXPECT_TRUE(errors[1 - own].starts_with(str("rank ", own, " on "))) << errors[1 - own];
    EXPECT_TRUE(errors[1 - own].ends_with(str(": no room on member ", who))) << errors[1 - own];
  }
}

TEST(ProcessGroup, FindsErrorsBehindTheLastSum) {
  const auto errors = testing::run_processes({several_cpus(1), several_cpus(2)}, [](DeviceGroup& group) {
    group.run([](Communicator& c) {
      c.meet();
      if (c.rank() == 2) fail(ErrorCode::device, "the card was lost");
    });
  });
  EXPECT_EQ(errors[1], "the card was lost");
  EXPECT_TRUE(errors[0].ends_with(": the card was lost")) << errors[0];
}

TEST(ProcessGroup, RefusesSumsOfDifferentThings) {
  const auto errors = testing::run_processes({several_cpus(1), several_cpus(1)}, [](DeviceGroup& group) {
    group.run([](Communicator& c) {
      std::vector<double> some(c.rank() == 0 ? 2 : 3);
      c.all_reduce_sum(some);
    });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("expected a multiple of 16"), std::string::npos) << error;
}

// Devices that have a way of their own, in one process each: "wired:0" and so on.
struct Wire final : PeerSums {
  explicit Wire(std::string name_and_version) : version(std::move(name_and_version)) {}
  std::string name() const override { return version; }
  void join() override { fail(ErrorCode::not_supported, "the wire is for several processes"); }
  std::vector<std::byte> invitation() override { return {std::byte{5}}; }
  void join(std::span<const std::byte> invitation, std::int64_t first, std::int64_t size) override {
    EXPECT_EQ(invitation.size(), 1U);
    EXPECT_EQ(invitation[0], std::byte{5});
    if (version == "broken wire" && first == 1) fail(ErrorCode::not_supported, "it is cut");
    members = size;
  }
  // All give the same.
  void add_up(std::size_t, Memory& memory, std::size_t offset, std::size_t count) override {
    auto* values = reinterpret_cast<float*>(memory.host_data() + offset);
    for (std::size_t i = 0; i < count; ++i) values[i] *= static_cast<float>(members);
  }
  void abort() override { ++aborts; }
  static inline std::atomic<int> aborts = 0;

  std::string version;
  std::int64_t members = 0;
};

std::unique_ptr<PeerSums> wire_of(const std::vector<Device>& devices) {
  const std::string name = devices[0].name();
  if (name.starts_with("plug:9")) fail(ErrorCode::not_supported, "no wire here");
  if (name.starts_with("plug:")) return std::make_unique<Wire>("wire");
  if (name.starts_with("oldplug:")) return std::make_unique<Wire>("old wire");
  if (name.starts_with("badplug:")) return std::make_unique<Wire>("broken wire");
  return nullptr;
}

bool register_plug(const std::string& name) {
  return register_backend(
      name, kNotAuto, [name](int index) { return std::make_shared<testing::NamedProcessor>(name, index); });
}

const bool plugged = register_plug("plug") && register_plug("oldplug") && register_plug("badplug") &&
                     register_peer_sums(wire_of);

void add_two(DeviceGroup& group) {
  group.run([&](Communicator& c) {
    const Device& device = group.devices()[0];
    CommandEncoder encoder(device);
    const Buffer a = Buffer::from(device, {2}, Numbers{1.0f, 2.0f});
    c.all_reduce_sum(encoder, {a});
    encoder.commit_and_wait();
    EXPECT_EQ(a.to_vector<float>(), (Numbers{2.0f, 4.0f}));
  });
}

std::vector<std::string> ways_of(const std::string& first, const std::string& second) {
  std::vector<std::string> ways(2);
  expect_none_failed(
      testing::run_processes({{Device::open(first)}, {Device::open(second)}}, [&](DeviceGroup& group) {
        ways[static_cast<std::size_t>(group.first_rank())] = group.way();
        add_two(group);
      }));
  EXPECT_EQ(ways[0], ways[1]);
  return ways;
}

TEST(ProcessGroup, TakesTheWayThatAllHave) {
  ASSERT_TRUE(plugged);
  EXPECT_EQ(ways_of("plug:0", "plug:1")[0], "wire");
  const auto expect = [](const std::string& second, const std::string& begin, const std::string& end) {
    const std::string way = ways_of(second == "badplug:1" ? "badplug:0" : "plug:0", second)[0];
    EXPECT_TRUE(way.starts_with("host memory (rank 1 on ") && way.find(begin) != std::string::npos &&
                way.ends_with(end))
        << way;
  };
  expect("oldplug:0", " has old wire", ", rank 0 wire)");
  expect("cpu", " has no such way", ", rank 0 wire)");
  expect("plug:9", ": no wire here", ")");
  expect("badplug:1", ": it is cut", ")");
}

// What waits on the wire for a process that is gone is ended meanwhile.
TEST(ProcessGroup, EndsTheWayWhereAProcessIsGone) {
  Wire::aborts = 0;
  const auto errors =
      testing::run_processes({{Device::open("plug:0")}, {Device::open("plug:1")}}, [](DeviceGroup& group) {
        if (!group.is_first()) return;
        group.run([](Communicator&) {
          for (int i = 0; i < 2000 && Wire::aborts == 0; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        });
      });
  EXPECT_EQ(Wire::aborts, 1);
  EXPECT_NE(errors[0].find(" is lost: "), std::string::npos) << errors[0];
}

}  // namespace
}  // namespace mixtape
