#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "mixtape/backend/sim/faults_params.h"
#include "mixtape/runtime/command_encoder.h"

namespace mixtape {
namespace {

constexpr std::int64_t kCount = 64;

std::vector<float> run(const std::string& kernel, std::uint32_t blocks = 1) {
  const Device device = Device::open("sim");
  CommandEncoder encoder(device);
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Buffer x = Buffer::from(device, {kCount}, values);
  const Buffer y = device.alloc_uninitialized(DType::f32, {kCount});
  encoder.encode({.kernel = kernel,
                  .params = params_bytes(SizeParams{kCount}),
                  .reads = {x},
                  .writes = {y},
                  .grid = {blocks, 1, 1},
                  .block = {kernel == "test_off_by_one" ? 65u : 64u, 1, 1}});
  encoder.commit_and_wait();
  return y.to_vector<float>();
}

std::string fault_of(const std::string& kernel, std::uint32_t blocks = 1) {
  try {
    run(kernel, blocks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no fault";
}

using ::testing::HasSubstr;

TEST(Machine, RunsBlocksOverBarriers) {
  const std::vector<float> y = run("test_reverse");
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<float>(kCount - 1 - i));
}

TEST(Machine, ReducesOverLanesAndWarps) {
  for (const float y : run("test_lane_reduction")) EXPECT_EQ(y, 63.0f * 32.0f + 63.0f);
}

TEST(Machine, FindsRaces) {
  EXPECT_THAT(fault_of("test_missing_barrier"),
              HasSubstr("kernel test_missing_barrier, block (0,0,0), thread ("));
  EXPECT_THAT(fault_of("test_missing_barrier_before_reuse"),
              HasSubstr("races with a write by block 0, thread 31"));
  EXPECT_THAT(fault_of("test_read_then_write"), HasSubstr("a write of byte 0 races with a read by block 0"));
  EXPECT_THAT(fault_of("test_blocks_race", 2), HasSubstr("a write of byte 0 races with a write by block 0"));
}

TEST(Machine, FindsKernelsThatDoNotAwaitEarlierOnes) {
  EXPECT_THAT(fault_of("test_reads_early"), HasSubstr("argument 0: read before await_earlier"));
  EXPECT_THAT(fault_of("test_never_awaits"), HasSubstr("thread (63,0,0): ends without await_earlier"));
}

TEST(Machine, FindsAccessesOutsideAndUnaligned) {
  EXPECT_THAT(fault_of("test_off_by_one"),
              HasSubstr("thread (64,0,0): argument 0: read of 4 bytes at byte 256, expected 0 to 255"));
  EXPECT_THAT(fault_of("test_misaligned"), HasSubstr("not aligned to 16"));
}

TEST(Machine, FindsReadsOfWhatNothingWrote) {
  EXPECT_THAT(fault_of("test_unwritten_output"), HasSubstr("byte 252 of 256 is read, but nothing wrote it"));
  EXPECT_THAT(fault_of("test_unwritten_shared"), HasSubstr("tile: read of byte 252, which nothing wrote"));
}

TEST(Machine, FindsDivergence) {
  EXPECT_THAT(fault_of("test_divergent_barrier"),
              HasSubstr("divergent barrier: 1 of 64 threads have returned"));
  EXPECT_THAT(fault_of("test_two_barriers"), HasSubstr("divergent barrier"));
  EXPECT_THAT(fault_of("test_divergent_lanes"), HasSubstr("31 of 32 threads are at a lane operation"));
}

TEST(Machine, RefusesTooManyThreads) {
  const Device device = Device::open("sim");
  CommandEncoder encoder(device);
  encoder.encode({.kernel = "test_reverse",
                  .params = params_bytes(SizeParams{1}),
                  .reads = {},
                  .writes = {},
                  .block = {512, 1, 1}});
  EXPECT_THROW(encoder.wait(), Error);
}

}  // namespace
}  // namespace mixtape
