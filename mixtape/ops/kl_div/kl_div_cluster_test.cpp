// The kernels for clusters, on the simulator, whose clusters have one block: they are part of this program
// only, where the launcher finds them.
#include <gmock/gmock.h>

#include <cmath>

#include "mixtape/ops/kl_div/kl_div.h"
#include "mixtape/ops/kl_div/kl_div_cuda.cu"
#include "mixtape/ops/kl_div/kl_div_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::upload;

struct Values {
  testing::HostTensor loss, dx;
};

// With and, where the student is moved off its alignment, without a cluster.
Values run(const testing::HostTensor& teacher, const testing::HostTensor& student,
           const std::vector<float>& dloss, bool is_aligned) {
  const Device device = Device::open("sim");
  const testing::Poison poison(device);
  const Shape& shape = student.shape;
  const std::int64_t shift = is_aligned ? 0 : 1;
  const Buffer memory = device.alloc(student.dtype, {shape.numel() + shift});
  const Buffer in = memory.slice(shift, shape.numel() + shift).reshape(shape);
  const Buffer loss = device.alloc_uninitialized(DType::f32, {shape[0]});
  CommandEncoder encoder(device);
  encoder.copy(upload(device, student), in);
  kl_div_forward_backward(encoder, upload(device, teacher), in, 2.0f, Buffer::from(device, {shape[0]}, dloss),
                          loss, in);
  encoder.commit_and_wait();
  return {testing::download(loss), testing::download(in)};
}

TEST(KlDivCluster, MatchesTwoKernels) {
  for (const DType dtype : testing::kValueDtypes) {
    for (const std::int64_t cols : {8, 264, 4096}) {
      const testing::HostTensor t = testing::random_tensor(dtype, {3, cols}, 3, 3.0),
                                s = testing::random_tensor(dtype, {3, cols}, 4, 3.0);
      const std::vector<float> dloss = {1.0f, 0.0f, -0.5f};
      const Values found = run(t, s, dloss, true), wanted = run(t, s, dloss, false);
      testing::expect_close(str("loss ", cols), found.loss, wanted.loss.values, {2.0, 1e-5});
      testing::expect_close(str("dx ", cols), found.dx, wanted.dx.values, {2.0, 1e-6});
      for (std::int64_t c = 0; c < cols; ++c) ASSERT_EQ(found.dx.values[cols + c], 0.0);
    }
  }
}

TEST(KlDivCluster, NearlyEqualRowsKeepTheirDivergence) {
  const testing::HostTensor t = testing::random_tensor(DType::f32, {3, 4096}, 3, 3.0),
                            change = testing::random_tensor(DType::f32, {3, 4096}, 4, 2e-3);
  testing::Doubles moved = t.values;
  for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += change.values[i];
  const testing::HostTensor s = testing::make_tensor(DType::f32, {3, 4096}, moved);
  const testing::Doubles wanted = oracle::kl_div(t.values, s.values, 4096, {2.0});
  const Values found = run(t, s, {1.0f, 1.0f, 1.0f}, true);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_LT(wanted[r], 1e-6);
    EXPECT_NEAR(found.loss.values[r], wanted[r], 0.01 * wanted[r]);
  }
}

// A cluster goes through several.
TEST(KlDivCluster, ManyRows) {
  const testing::HostTensor t = testing::random_tensor(DType::bf16, {2101, 24}, 3, 3.0),
                            s = testing::random_tensor(DType::bf16, {2101, 24}, 4, 3.0);
  std::vector<float> dloss;
  for (int r = 0; r < 2101; ++r) dloss.push_back(r % 5 == 0 ? 0.0f : 0.5f);
  const Values found = run(t, s, dloss, true), wanted = run(t, s, dloss, false);
  testing::expect_close("loss", found.loss, wanted.loss.values, {2.0, 1e-5});
  testing::expect_close("dx", found.dx, wanted.dx.values, {2.0, 1e-6});
}

TEST(KlDivCluster, LargeLogitsKeepTheirDifferences) {
  for (const double offset : {1000.0, 60000.0, 1e8, -1e8}) {
    testing::HostTensor t = testing::random_tensor(DType::bf16, {3, 264}, 1, 2.0), s = t;
    const auto move = [&](testing::HostTensor& x, double by) {
      for (double& v : x.values)
        v = static_cast<double>(static_cast<float>(bf16(static_cast<float>(by * (1.0 + v / 256)))));
    };
    move(t, offset);
    move(s, 50.0);
    const Values found = run(t, s, {1.0f, 1.0f, 1.0f}, true), wanted = run(t, s, {1.0f, 1.0f, 1.0f}, false);
    testing::expect_close(str("loss ", offset), found.loss, wanted.loss.values, {4.0, 1e-4});
    testing::expect_close(str("dx ", offset), found.dx, wanted.dx.values, {2.0, 1e-6});
  }
}

// The powers that a thread keeps are below its warp's maximum: 64 threads hold these rows, packs of 8 go to them in turn.
TEST(KlDivCluster, WarpsWhoseMaximaLieFarApart) {
  constexpr std::size_t kCols = 4096;
  const std::vector<float> dloss = {1.0f, -0.5f};
  for (const double lower : {0.0, 40.0, 100.0, 400.0, HUGE_VAL}) {
    for (const bool is_teacher : {true, false}) {
      testing::HostTensor t = testing::random_tensor(DType::bf16, {2, kCols}, 3, 3.0),
                          s = testing::random_tensor(DType::bf16, {2, kCols}, 4, 3.0);
      testing::HostTensor& moved = is_teacher ? t : s;
      for (std::size_t i = 0; i < 2 * kCols; ++i) {
        if (i % kCols / 8 % 64 >= 32)
          moved.values[i] =
              static_cast<double>(static_cast<float>(bf16(static_cast<float>(moved.values[i] - lower))));
      }
      const Values found = run(t, s, dloss, true), wanted = run(t, s, dloss, false);
      testing::expect_close(str("loss ", lower), found.loss, wanted.loss.values, {2.0, 1e-5});
      testing::expect_close(str("dx ", lower), found.dx, wanted.dx.values, {2.0, 1e-6});
      const Values equal = run(t, t, dloss, true);
      EXPECT_THAT(equal.dx.values, ::testing::Each(0.0)) << lower;
    }
  }
}

TEST(KlDivCluster, NanAndMinusInfinity) {
  for (const DType dtype : testing::kValueDtypes) {
    const testing::Doubles low(4 * 1024, -HUGE_VAL);
    testing::HostTensor t{dtype, {4, 1024}, low}, s{dtype, {4, 1024}, low};
    for (const std::size_t row : {0, 1, 2, 3}) {
      t.values[row * 1024 + 2] = t.values[row * 1024 + 900] = 1.0;
      s.values[row * 1024 + 2] = s.values[row * 1024 + 900] = 3.0;
    }
    s.values[1024 + 900] = -HUGE_VAL;
    s.values[2048 + 5] = NAN;
    t.values[3072 + 5] = NAN;
    const Values found = run(t, s, {1.0f, 1.0f, 1.0f, 0.0f}, true);
    EXPECT_EQ(found.loss.values[0], 0.0);
    EXPECT_EQ(found.loss.values[1], HUGE_VAL);
    EXPECT_TRUE(std::isnan(found.loss.values[2]));
    EXPECT_TRUE(std::isnan(found.loss.values[3]));
    EXPECT_EQ(found.dx.values[1024 + 2], 0.25);
    EXPECT_EQ(found.dx.values[1024 + 900], -0.25);
    for (std::size_t c = 0; c < 1024; ++c) {
      ASSERT_EQ(found.dx.values[c], 0.0);
      ASSERT_EQ(found.dx.values[3072 + c], 0.0);
    }
  }
}

}  // namespace
}  // namespace mixtape
