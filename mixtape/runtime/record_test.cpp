// Work recorded once and replayed, on every device that can.
#include "mixtape/runtime/command_encoder.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Values = std::vector<float>;

class Record : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!device.backend().can_record()) GTEST_SKIP() << device.name() << " records nothing";
  }
  Device device = Device::open(GetParam());
  CommandEncoder encoder{device};
};

TEST_P(Record, RunsOnWhatTheBuffersHoldThen) {
  const Buffer x = Buffer::from(device, {3}, Values{1, 2, 3});
  const Buffer sum = device.alloc(DType::f32, {3});
  Buffer inner;
  const auto replay = encoder.record([&] {
    inner = device.alloc_uninitialized(DType::f32, {3});
    encoder.copy(x, inner);
    encoder.accumulate(inner, sum);
  });
  encoder.commit_and_wait();
  EXPECT_EQ(sum.to_vector<float>(), (Values{0, 0, 0}));
  replay->run();
  encoder.commit_and_wait();
  EXPECT_EQ(sum.to_vector<float>(), (Values{1, 2, 3}));
  x.copy_from(std::span<const float>(Values{10, 20, 30}));
  replay->run();
  replay->run();
  encoder.commit_and_wait();
  EXPECT_EQ(sum.to_vector<float>(), (Values{21, 42, 63}));
  EXPECT_EQ(inner.to_vector<float>(), (Values{10, 20, 30}));
}

TEST_P(Record, ZeroFilledMemoryIsZeroInEachRun) {
  const Buffer one = Buffer::from(device, {1}, Values{1});
  Buffer inner;
  const auto replay = encoder.record([&] {
    inner = device.alloc(DType::f32, {1});
    encoder.accumulate(one, inner);
  });
  for (int i = 0; i < 3; ++i) replay->run();
  encoder.commit_and_wait();
  EXPECT_EQ(inner.to_vector<float>(), Values{1});
}

TEST_P(Record, ItsMemoryIsItsOwn) {
  const Buffer x = Buffer::from(device, {1000}, Values(1000, 5.0f));
  const Buffer y = device.alloc(DType::f32, {1000});
  auto replay = encoder.record([&] {
    const Buffer inner = device.alloc_uninitialized(DType::f32, {1000});
    encoder.copy(x, inner);
    encoder.copy(inner, y);
  });
  std::vector<Buffer> others;
  for (int i = 0; i < 8; ++i) others.push_back(Buffer::from(device, {1000}, Values(1000, 7.0f)));
  replay->run();
  encoder.commit_and_wait();
  EXPECT_EQ(y.to_vector<float>(), Values(1000, 5.0f));
  for (const Buffer& other : others) EXPECT_EQ(other.to_vector<float>(), Values(1000, 7.0f));
}

TEST_P(Record, KeepsWhatItUses) {
  const std::size_t before = device.memory_stats().live_bytes;
  const Buffer y = device.alloc(DType::f32, {100});
  std::shared_ptr<Replay> replay;
  {
    const Buffer x = Buffer::from(device, {100}, Values(100, 3.0f));
    replay = encoder.record([&] { encoder.copy(x, y); });
  }
  const Buffer other = Buffer::from(device, {100}, Values(100, 4.0f));
  replay->run();
  encoder.commit_and_wait();
  EXPECT_EQ(y.to_vector<float>(), Values(100, 3.0f));
  replay = nullptr;
  EXPECT_LE(device.memory_stats().live_bytes, before + 2 * 400);
}

TEST_P(Record, RefusesTheHostMeanwhile) {
  const Buffer x = device.alloc(DType::f32, {2});
  encoder.record([&] {
    MIXTAPE_EXPECT_ERROR(encoder.wait(), ErrorCode::invalid_argument, "recording");
    MIXTAPE_EXPECT_ERROR(x.to_vector<float>(), ErrorCode::invalid_argument, "recording");
    MIXTAPE_EXPECT_ERROR(Buffer::from(device, {1}, Values{1}), ErrorCode::invalid_argument, "recording");
    MIXTAPE_EXPECT_ERROR(encoder.record([] {}), ErrorCode::invalid_argument, "recording");
  });
}

TEST_P(Record, AFailureLeavesTheDeviceAsItWas) {
  const Buffer x = device.alloc(DType::f32, {2});
  MIXTAPE_EXPECT_ERROR(encoder.record([&] {
    encoder.fill(x, 1.0f);
    fail(ErrorCode::format, "on purpose");
  }),
                       ErrorCode::format, "on purpose");
  encoder.fill(x, 2.0f);
  encoder.commit_and_wait();
  EXPECT_EQ(x.to_vector<float>(), (Values{2, 2}));
}

INSTANTIATE_TEST_SUITE_P(Devices, Record, ::testing::ValuesIn(testing::test_device_names()));

TEST(RecordOnCpu, IsNotSupported) {
  CommandEncoder encoder(Device::cpu());
  MIXTAPE_EXPECT_ERROR(encoder.record([] {}), ErrorCode::not_supported, "cpu records no work");
}

}  // namespace
}  // namespace mixtape
