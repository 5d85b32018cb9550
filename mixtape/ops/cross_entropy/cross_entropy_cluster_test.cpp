// The kernels for clusters, on the simulator, whose clusters have one block: they are part of this program
// only, where the launcher finds them.
#include <cmath>

#include "mixtape/ops/cross_entropy/cross_entropy.h"
#include "mixtape/ops/cross_entropy/cross_entropy_cuda.cu"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::upload;

struct Values {
  testing::HostTensor loss, dx;
};

// With and, where `x` is moved off its alignment, without a cluster.
Values run(const testing::HostTensor& x, const std::vector<std::uint32_t>& targets,
           const std::vector<float>& dloss, bool is_aligned) {
  const Device device = Device::open("sim");
  const testing::Poison poison(device);
  const std::int64_t rows = x.shape[0], shift = is_aligned ? 0 : 1;
  const Buffer memory = device.alloc(x.dtype, {x.shape.numel() + shift});
  const Buffer in = memory.slice(shift, x.shape.numel() + shift).reshape(x.shape);
  const Buffer loss = device.alloc_uninitialized(DType::f32, {rows});
  CommandEncoder encoder(device);
  encoder.copy(upload(device, x), in);
  cross_entropy_forward_backward(encoder, in, Buffer::from(device, {rows}, targets),
                                 Buffer::from(device, {rows}, dloss), loss, in);
  encoder.commit_and_wait();
  return {testing::download(loss), testing::download(in)};
}

TEST(CrossEntropyCluster, MatchesTwoKernels) {
  for (const DType dtype : testing::kValueDtypes) {
    for (const std::int64_t cols : {8, 264, 4096}) {
      const testing::HostTensor x = testing::random_tensor(dtype, {4, cols}, 3, 2.0);
      const std::vector<std::uint32_t> targets = {0, kIgnoreTarget, static_cast<std::uint32_t>(cols - 1), 5};
      const std::vector<float> dloss = {1.0f, 2.0f, -0.5f, 0.0f};
      const Values found = run(x, targets, dloss, true), wanted = run(x, targets, dloss, false);
      testing::expect_close(str("loss ", cols), found.loss, wanted.loss.values, {2.0, 1e-5});
      testing::expect_close(str("dx ", cols), found.dx, wanted.dx.values, {128.0, 1e-37});
      for (std::int64_t c = 0; c < cols; ++c) {
        ASSERT_EQ(found.dx.values[cols + c], 0.0);
        ASSERT_EQ(found.dx.values[3 * cols + c], 0.0);
      }
    }
  }
}

// A cluster goes through several.
TEST(CrossEntropyCluster, ManyRows) {
  const testing::HostTensor x = testing::random_tensor(DType::bf16, {2101, 24}, 3, 2.0);
  std::vector<std::uint32_t> targets;
  for (std::uint32_t r = 0; r < 2101; ++r) targets.push_back(r % 7 == 0 ? kIgnoreTarget : r % 24);
  const std::vector<float> dloss(2101, 0.5f);
  const Values found = run(x, targets, dloss, true), wanted = run(x, targets, dloss, false);
  testing::expect_close("loss", found.loss, wanted.loss.values, {2.0, 1e-5});
  testing::expect_close("dx", found.dx, wanted.dx.values, {2.0, 1e-6});
}

TEST(CrossEntropyCluster, LargeLogitsKeepTheirDifferences) {
  for (const double offset : {1000.0, 60000.0, 1e8, -1e8}) {
    testing::HostTensor x = testing::random_tensor(DType::bf16, {3, 264}, 1, 2.0);
    for (double& v : x.values)
      v = static_cast<double>(static_cast<float>(bf16(static_cast<float>(offset * (1.0 + v / 256)))));
    const std::vector<float> dloss = {1.0f, 1.0f, -2.0f};
    const Values found = run(x, {0, 100, 263}, dloss, true), wanted = run(x, {0, 100, 263}, dloss, false);
    testing::expect_close(str("loss ", offset), found.loss, wanted.loss.values, {2.0, 1e-5});
    testing::expect_close(str("dx ", offset), found.dx, wanted.dx.values, {2.0, 1e-6});
  }
}

TEST(CrossEntropyCluster, NanAndMinusInfinity) {
  testing::HostTensor x{DType::f32, {3, 1024}, testing::Doubles(3 * 1024, -HUGE_VAL)};
  x.values[3] = x.values[1000] = 0.0;
  x.values[1024 + 7] = x.values[2048 + 7] = NAN;
  const Values found = run(x, {1000, 9, kIgnoreTarget}, {1.0f, 1.0f, 1.0f}, true);
  EXPECT_FLOAT_EQ(static_cast<float>(found.loss.values[0]), 0.693147181f);
  EXPECT_EQ(found.dx.values[3], 0.5);
  EXPECT_EQ(found.dx.values[1000], -0.5);
  EXPECT_EQ(found.dx.values[4], 0.0);
  EXPECT_TRUE(std::isnan(found.loss.values[1]));
  EXPECT_EQ(found.loss.values[2], 0.0);
  for (std::size_t c = 0; c < 1024; ++c) {
    ASSERT_TRUE(std::isnan(found.dx.values[1024 + c]));
    ASSERT_EQ(found.dx.values[2048 + c], 0.0);
  }
}

}  // namespace
}  // namespace mixtape
