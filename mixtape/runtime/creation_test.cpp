#include "mixtape/runtime/creation.h"

#include <cmath>

#include "mixtape/core/random.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using Floats = std::vector<float>;
constexpr auto kInvalid = ErrorCode::invalid_argument;

TEST(Creation, OneValueEverywhere) {
  for (const Device& device : testing::test_devices()) {
    EXPECT_EQ(zeros(device, {2, 2}).to_vector<float>(), Floats(4, 0.0f));
    EXPECT_EQ(ones(device, {3}, DType::u8).to_vector<std::uint8_t>(), std::vector<std::uint8_t>(3, 1));
    EXPECT_EQ(full(device, {2}, -7.0, DType::i32).to_vector<std::int32_t>(),
              std::vector<std::int32_t>(2, -7));
    EXPECT_EQ(full(device, {0, 4}, 1.0).shape(), (Shape{0, 4}));
    EXPECT_EQ(static_cast<float>(full(device, {1}, 1.001, DType::bf16).to_vector<bf16>()[0]), 1.0f);
  }
  const Device device = Device::cpu();
  MIXTAPE_EXPECT_ERROR(full(device, {1}, 0.5, DType::u32), kInvalid,
                       "full: value is 0.5, expected a whole number of u32");
  MIXTAPE_EXPECT_ERROR(full(device, {1}, 256.0, DType::u8), kInvalid, "full: value is 256");
  MIXTAPE_EXPECT_ERROR(full(device, {1}, NAN, DType::i32), kInvalid, "full: value is nan");
}

TEST(Creation, Ranges) {
  const Device device = Device::cpu();
  EXPECT_EQ(arange(device, 0, 4, 1, DType::u32).to_vector<std::uint32_t>(),
            (std::vector<std::uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(arange(device, 1.0, 0.0, -0.25).to_vector<float>(), (Floats{1.0f, 0.75f, 0.5f, 0.25f}));
  EXPECT_EQ(arange(device, 0.0, 1.1, 0.5).to_vector<float>(), (Floats{0.0f, 0.5f, 1.0f}));
  EXPECT_EQ(arange(device, 3, 3).shape(), (Shape{0}));
  EXPECT_EQ(arange(device, 3, 0).shape(), (Shape{0}));
  MIXTAPE_EXPECT_ERROR(arange(device, 0, 1, 0), kInvalid, "step is 0");
  MIXTAPE_EXPECT_ERROR(arange(device, 0, HUGE_VAL), kInvalid, "stop is inf");
  MIXTAPE_EXPECT_ERROR(arange(device, 0, 1e300), kInvalid, "expected fewer than 2^53");
  MIXTAPE_EXPECT_ERROR(arange(device, -1, 1, 1, DType::u32), kInvalid, "arange: value is -1");
}

TEST(Creation, RandomNumbersAreTheLibrarys) {
  for (const Device& device : testing::test_devices()) {
    const Floats found = randn(device, {50, 20}, 7, 2.0).to_vector<float>();
    double sum = 0.0, squares = 0.0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i], static_cast<float>(2.0 * normal(7, i)));
      sum += static_cast<double>(found[i]);
      squares += static_cast<double>(found[i]) * static_cast<double>(found[i]);
    }
    EXPECT_NEAR(sum / 1000.0, 0.0, 0.2);
    EXPECT_NEAR(squares / 1000.0, 4.0, 0.6);
    for (const float v : uniform(device, {1000}, 7, -3.0, -2.0).to_vector<float>())
      EXPECT_TRUE(v >= -3.0f && v <= -2.0f) << v;
    EXPECT_NE(randn(device, {4}, 1).to_vector<float>(), randn(device, {4}, 2).to_vector<float>());
  }
  const Device device = Device::cpu();
  MIXTAPE_EXPECT_ERROR(randn(device, {1}, 1, -1.0), kInvalid, "randn: deviation is -1");
  MIXTAPE_EXPECT_ERROR(randn(device, {1}, 1, 1.0, DType::u32), kInvalid,
                       "randn: dtype is u32, expected f32, bf16 or f16");
  MIXTAPE_EXPECT_ERROR(uniform(device, {1}, 1, 2.0, 2.0), kInvalid, "uniform: low is 2, high is 2");
}

}  // namespace
}  // namespace mixtape
