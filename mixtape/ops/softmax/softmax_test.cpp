#include "mixtape/ops/softmax/softmax.h"

#include <cmath>

#include "mixtape/ops/softmax/softmax_check.h"
#include "mixtape/ops/softmax/softmax_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

TEST(Softmax, MatchesOracle) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) check_ops(device, softmax_checks(device, dtype));
  }
}

std::vector<float> softmax_of(const Device& device, const std::vector<float>& x) {
  CommandEncoder encoder(device);
  const testing::Poison poison(device);
  const Shape shape{1, static_cast<std::int64_t>(x.size())};
  const Buffer y = device.alloc_uninitialized(DType::f32, shape);
  softmax_forward(encoder, Buffer::from(device, shape, x), y);
  encoder.commit_and_wait();
  return y.to_vector<float>();
}

TEST(Softmax, A1_RowOfMinusInfinityIsNanAtEveryLength) {
  for (const Device& device : testing::test_devices()) {
    for (const std::size_t n : {1, 2, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4095, 4096, 4097, 65537}) {
      for (const float y : softmax_of(device, std::vector<float>(n, -HUGE_VALF)))
        ASSERT_TRUE(std::isnan(y)) << n;
    }
  }
}

TEST(Softmax, A4_NanFillsItsRow) {
  for (const Device& device : testing::test_devices()) {
    for (const std::size_t n : {2, 17, 64}) {
      for (const std::size_t at : {std::size_t{0}, n - 1}) {
        std::vector<float> x(n, 1.0f);
        x[at] = NAN;
        for (const float y : softmax_of(device, x)) ASSERT_TRUE(std::isnan(y)) << n << " at " << at;
      }
    }
  }
}

// A sum kept in bf16 would stop growing at 256.
TEST(Softmax, A8_EqualLogits) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      const Buffer x = upload(device, testing::make_tensor(dtype, {1, 512}, std::vector<double>(512, 3.0)));
      const Buffer y = device.alloc_uninitialized(dtype, {1, 512});
      CommandEncoder encoder(device);
      softmax_forward(encoder, x, y);
      encoder.commit_and_wait();
      EXPECT_EQ(testing::download(y).values, std::vector<double>(512, 1.0 / 512.0)) << dtype;
    }
  }
}

TEST(Softmax, A10_EveryWidthTo130) {
  for (const Device& device : testing::test_devices()) {
    for (std::int64_t cols = 1; cols <= 130; ++cols) {
      const testing::HostTensor x =
          testing::random_tensor(DType::f32, {1, cols}, static_cast<std::uint64_t>(cols));
      const std::vector<float> y = softmax_of(device, std::vector<float>(x.values.begin(), x.values.end()));
      const testing::HostTensor found = testing::make_tensor(DType::f32, {1, cols}, {y.begin(), y.end()});
      testing::expect_close(str("width ", cols), found, oracle::softmax(x.values, cols), {16.0, 0.0});
    }
  }
}

TEST(Softmax, WideRows) {
  for (const Device& device : testing::test_devices()) {
    for (const DType dtype : testing::kValueDtypes) {
      check_op(device, softmax_check(dtype, 2, 65537), 3);
      if (device.name() == "sim") continue;
      for (const std::int64_t cols : {4096, 12000, 16384, 32768, 65536, 131072, 151936})
        check_op(device, softmax_check(dtype, 3, cols), 3);
    }
  }
}

// 2048 equal numerators of 1 exceed f16's integers, their quotients are exact; 2^-20 is subnormal.
TEST(Softmax, F16EdgesOfTheRange) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t cols : {2048, 1 << 20}) {
      if (device.name() == "sim" && cols > 2048) continue;
      const Buffer x = device.alloc(DType::f16, {1, cols}), y = device.alloc(DType::f16, {1, cols});
      CommandEncoder encoder(device);
      encoder.fill(x, 65504.0f);
      softmax_forward(encoder, x, y);
      encoder.commit_and_wait();
      for (const f16 v : y.to_vector<f16>())
        ASSERT_EQ(static_cast<float>(v), 1.0f / static_cast<float>(cols));
    }
    const Buffer y = device.alloc(DType::f16, {1, 3});
    CommandEncoder encoder(device);
    softmax_forward(
        encoder, Buffer::from(device, {1, 3}, std::vector<f16>{f16(10.0f), f16(-65504.0f), f16(-6.0f)}), y);
    encoder.commit_and_wait();
    const auto found = y.to_vector<f16>();
    EXPECT_EQ(static_cast<float>(found[0]), 1.0f);
    EXPECT_EQ(static_cast<float>(found[1]), 0.0f);
    EXPECT_EQ(static_cast<float>(found[2]), 0x2p-24f);  // e^-16 is 1.89 * 2^-24
  }
}

TEST(Softmax, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const Buffer x = device.alloc(DType::f32, {4, 8});
  const auto code = ErrorCode::invalid_argument;
  MIXTAPE_EXPECT_ERROR(softmax_forward(encoder, Buffer(), x), code, "softmax: x is null");
  MIXTAPE_EXPECT_ERROR(softmax_forward(encoder, device.alloc(DType::u32, {4, 8}), x), code, "x is u32[4,8]");
  MIXTAPE_EXPECT_ERROR(softmax_forward(encoder, device.alloc(DType::f32, {}), x), code, "rank 1 or more");
  MIXTAPE_EXPECT_ERROR(softmax_forward(encoder, device.alloc(DType::f32, {4, 0}), x), code,
                       "a last dimension of 1 or more");
  MIXTAPE_EXPECT_ERROR(softmax_backward(encoder, x, device.alloc(DType::f32, {3, 8}), x), code,
                       "softmax_backward: dy is f32[3,8], expected f32[4,8] like y");
}

}  // namespace
}  // namespace mixtape
