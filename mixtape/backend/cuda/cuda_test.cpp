// What only a card can show; skipped where there is none.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "mixtape/backend/cuda/driver.h"
#include "mixtape/runtime/command_encoder.h"
#include "mixtape/runtime/creation.h"
#include "mixtape/runtime/device_group.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr const char* kTwice =
    "extern \"C\" __global__ void twice(long long n, const float* x, float* y) {"
    "  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;"
    "  if (i < n) y[i] = 2.0f * x[i];"
    "}";

std::optional<Device> card() {
  try {
    return Device::open("cuda");
  } catch (const Error&) {
    return std::nullopt;
  }
}

class Cuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!card()) GTEST_SKIP() << "no card";
  }
};

TEST_F(Cuda, RunsAUsersSource) {
  const Device device = *card();
  device.kernels().register_source("twice", kTwice);
  CommandEncoder encoder(device);
  const Buffer x = Buffer::from(device, {3}, std::vector<float>{1, 2, 3}), y = device.alloc(DType::f32, {3});
  encoder.encode({.kernel = "twice",
                  .params = params_bytes(std::int64_t{3}),
                  .reads = {x},
                  .writes = {y},
                  .grid = {1, 1, 1},
                  .block = {32, 1, 1}});
  encoder.commit_and_wait();
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 4, 6}));
  MIXTAPE_EXPECT_ERROR(device.kernels().register_source("twice", kTwice), ErrorCode::invalid_argument,
                       "exists");
}

TEST_F(Cuda, SaysWhatTheCompilerSays) {
  MIXTAPE_EXPECT_ERROR(card()->kernels().register_source("broken", "extern \"C\" __global__ void broken( {"),
                       ErrorCode::invalid_argument, "error");
  MIXTAPE_EXPECT_ERROR(card()->kernels().register_source("absent", kTwice), ErrorCode::invalid_argument,
                       "absent");
}

TEST_F(Cuda, TooMuchMemoryIsAnErrorAndTheCardWorksOn) {
  const Device device = *card();
  MIXTAPE_EXPECT_ERROR(device.alloc(DType::f32, {std::int64_t{1} << 40}), ErrorCode::out_of_memory,
                       "bytes are live");
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {2});
  encoder.fill(x, 1.0f);
  encoder.commit_and_wait();
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 1}));
}

// 25 GB one after the other, no size twice.
TEST_F(Cuda, BuffersOfManySizesShareTheirMemory) {
  const Device device = *card();
  const auto use = [&](std::int64_t kilobytes) {
    device.alloc_uninitialized(DType::u32, {kilobytes * 256});
    std::size_t free = 0, total = 0;
    EXPECT_EQ(cuda::driver().MemGetInfo(&free, &total), cuda::kSuccess);
    return free;
  };
  const std::size_t before = use(64 << 10);
  std::size_t after = before;
  for (int i = 1; i <= 400; ++i) after = use((64 << 10) + 4 * i);
  EXPECT_LT(before - std::min(before, after), std::size_t{2} << 30);
}

std::vector<Device> two_cards() {
  std::vector<Device> cards = {*card()};
  try {
    cards.push_back(Device::open("cuda:1"));
  } catch (const Error&) {
  }
  return cards;
}

// By NCCL where it is there: sums of two come out as the host's. The group goes on where a member has failed.
TEST_F(Cuda, CardsAddUp) {
  const std::vector<Device> cards = two_cards();
  if (cards.size() < 2) GTEST_SKIP() << "one card";
  DeviceGroup group(cards);
  std::fprintf(stderr, "added up through %s\n", group.way().c_str());
  const auto add_up = [&](Communicator& c, std::int64_t n) {
    const Device& device = cards[static_cast<std::size_t>(c.rank())];
    CommandEncoder encoder(device);
    const Buffer x = randn(device, {n}, 1 + static_cast<std::uint64_t>(c.rank())),
                 few = device.alloc(DType::f32, {3});
    encoder.fill(few, static_cast<float>(c.rank() + 1));
    c.all_reduce_sum(encoder, {few, x});
    encoder.commit_and_wait();
    const auto first = randn(Device::cpu(), {n}, 1).to_vector<float>(),
               second = randn(Device::cpu(), {n}, 2).to_vector<float>(), sum = x.to_vector<float>();
    std::int64_t wrong = few.to_vector<float>() != std::vector<float>(3, 3.0f);
    for (std::size_t i = 0; i < sum.size(); ++i) wrong += sum[i] != first[i] + second[i];
    EXPECT_EQ(wrong, 0) << n << " elements, rank " << c.rank();
  };
  for (const std::int64_t n : {1, 1000, 3'000'001, 20'000'000})
    group.run([&](Communicator& c) { add_up(c, n); });
  const auto fail_late = [&](Communicator& c) {
    add_up(c, 1000);
    if (c.rank() == 1) fail(ErrorCode::out_of_memory, "no room");
    add_up(c, 1000);
  };
  MIXTAPE_EXPECT_ERROR(group.run(fail_late), ErrorCode::out_of_memory, "no room");
  group.run([&](Communicator& c) { add_up(c, 1000); });
}

TEST_F(Cuda, ACardIsNotNamedTwice) {
  MIXTAPE_EXPECT_ERROR(DeviceGroup({*card(), *card()}), ErrorCode::invalid_argument,
                       "devices: cuda:0 is named twice");
}

// A kernel that writes where nothing is: the card's context is gone for good, the CPU is not.
void lose_the_card() {
  const Device device = *card();
  device.kernels().register_source("wild",
                                   "extern \"C\" __global__ void wild(long long at) { *(int*)at = 1; }");
  CommandEncoder encoder(device);
  encoder.encode({.kernel = "wild", .params = params_bytes(std::int64_t{8}), .reads = {}, .writes = {}});
  for (int i = 0; i < 2; ++i) {
    MIXTAPE_EXPECT_ERROR(encoder.commit_and_wait(), ErrorCode::device, "illegal");
  }
  CommandEncoder on_cpu(Device::cpu());
  const Buffer x = Device::cpu().alloc(DType::f32, {1});
  on_cpu.fill(x, 3.0f);
  on_cpu.commit_and_wait();
  std::fprintf(stderr, "cpu gives %g", static_cast<double>(x.to_vector<float>()[0]));
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST_F(Cuda, ALostCardIsAnErrorEachTimeAndTheCpuWorksOn) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(lose_the_card(), ::testing::ExitedWithCode(0), "cpu gives 3");
}

}  // namespace
}  // namespace mixtape
