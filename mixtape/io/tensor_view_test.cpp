#include "mixtape/io/tensor_view.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "mixtape/core/error.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <class T>
TensorView view_of(FileDType dtype, const Shape& shape, const std::vector<T>& values) {
  return {dtype, shape, std::as_bytes(std::span(values))};
}

template <class To>
std::vector<To> loaded(const TensorView& view) {
  const Buffer buffer = load("t", view, dtype_of<To>(), Device::cpu());
  return buffer.to_vector<To>();
}

TEST(TensorView, ConvertsValues) {
  const std::vector<float> values = {1.0f, -2.5f, 1.00390625f, 65504.0f};  // the third is a tie in bf16
  const TensorView f32 = view_of(FileDType::F32, {2, 2}, values);
  EXPECT_EQ(loaded<float>(f32), values);
  EXPECT_EQ(loaded<bf16>(f32), (std::vector<bf16>{bf16(1.0f), bf16(-2.5f), bf16(1.0f), bf16(65536.0f)}));
  EXPECT_EQ(loaded<f16>(f32)[3], f16(65504.0f));

  const std::vector<bf16> narrow = {bf16(0.5f), bf16(-3.0f)};
  EXPECT_EQ(loaded<float>(view_of(FileDType::BF16, {2}, narrow)), (std::vector<float>{0.5f, -3.0f}));
  EXPECT_EQ(loaded<bf16>(view_of(FileDType::BF16, {2}, narrow)), narrow);
  const std::vector<f16> half = {f16(0.1f), f16(6e-8f)};
  EXPECT_EQ(loaded<float>(view_of(FileDType::F16, {2}, half)),
            (std::vector<float>{static_cast<float>(f16(0.1f)), 0x1p-24f}));
}

TEST(TensorView, RoundsDoublesOnce) {
  // Just above the bf16 tie 1 + 2^-8: through f32 it would become the tie and round down to 1.
  const std::vector<double> values = {1.0 + 0x1p-8 + 0x1p-40, -(1.0 + 0x1p-8 + 0x1p-40), 1.0 + 0x1p-8, 1e300,
                                      1.0 + 3 * 0x1p-8 - 0x1p-40};
  const TensorView view = view_of(FileDType::F64, {5}, values);
  const bf16 up(1.0f + 0x1p-7f);
  EXPECT_EQ(loaded<bf16>(view), (std::vector<bf16>{up, bf16(-1.0f - 0x1p-7f), bf16(1.0f), bf16(kInf), up}));
  EXPECT_EQ(loaded<float>(view)[3], kInf);
  const std::vector<double> nan = {std::nan("")};
  EXPECT_TRUE(std::isnan(static_cast<float>(loaded<bf16>(view_of(FileDType::F64, {1}, nan))[0])));
}

TEST(TensorView, ReadsUnalignedBytes) {
  std::vector<std::byte> bytes(9);
  const float values[2] = {3.0f, 4.0f};
  std::memcpy(bytes.data() + 1, values, 8);
  const TensorView view{FileDType::F32, {2}, std::span<const std::byte>(bytes).subspan(1)};
  EXPECT_EQ(loaded<float>(view), (std::vector<float>{3.0f, 4.0f}));
  EXPECT_EQ(loaded<bf16>(view), (std::vector<bf16>{bf16(3.0f), bf16(4.0f)}));
}

TEST(TensorView, ConvertsMoreThanOneChunk) {
  std::vector<float> values(600'001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251);
  const std::vector<bf16> out = loaded<bf16>(view_of(FileDType::F32, {600'001}, values));
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(out[i], bf16(values[i])) << i;
}

TEST(TensorView, KeepsIntegersAndNarrowsIds) {
  const std::vector<std::uint32_t> codes = {0xffffffffu, 7u};
  EXPECT_EQ(loaded<std::uint32_t>(view_of(FileDType::U32, {2}, codes)), codes);
  const std::vector<std::int64_t> ids = {5, -1};
  EXPECT_EQ(loaded<std::int32_t>(view_of(FileDType::I64, {2}, ids)), (std::vector<std::int32_t>{5, -1}));
  const std::vector<std::int64_t> large = {0, 1ll << 31};
  MIXTAPE_EXPECT_ERROR(loaded<std::int32_t>(view_of(FileDType::I64, {2}, large)), ErrorCode::format,
                       "tensor 't': value 2147483648 at position 1 doesn't fit in i32");
}

TEST(TensorView, RefusesOtherPairings) {
  const std::vector<std::uint8_t> bytes(16);
  const auto view = [&](FileDType dtype) {
    return TensorView{dtype, Shape{2}, std::as_bytes(std::span(bytes)).first(2 * size_of(dtype))};
  };
  MIXTAPE_EXPECT_ERROR(loaded<float>(view(FileDType::F8_E4M3)), ErrorCode::not_supported,
                       "tensor 't': F8_E4M3 cannot be loaded as f32");
  MIXTAPE_EXPECT_ERROR(loaded<float>(view(FileDType::U32)), ErrorCode::not_supported,
                       "U32 cannot be loaded as f32");
  MIXTAPE_EXPECT_ERROR(loaded<std::uint32_t>(view(FileDType::F32)), ErrorCode::not_supported,
                       "F32 cannot be loaded as u32");
  MIXTAPE_EXPECT_ERROR(loaded<std::uint32_t>(view(FileDType::I64)), ErrorCode::not_supported,
                       "I64 cannot be loaded as u32");
  const Buffer small = Device::cpu().alloc(DType::u8, {3});
  MIXTAPE_EXPECT_ERROR(load_into("t", view(FileDType::U8), small), ErrorCode::invalid_argument,
                       "tensor 't': has shape [2], the target is u8[3]");
}

TEST(TensorView, SlicesTheFirstAxis) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const TensorView view = view_of(FileDType::F32, {3, 2}, values);
  EXPECT_EQ(loaded<float>(slice(view, 1, 3)), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(slice(view, 3, 3).shape, (Shape{0, 2}));
  EXPECT_THROW(slice(view, 2, 4), Error);
}

TEST(TensorView, H5_NonFiniteValuesAreNamed) {
  std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const TensorView view = view_of(FileDType::F32, {2, 3}, values);
  check_finite("w", view);
  values[5] = -kInf;
  MIXTAPE_EXPECT_ERROR(check_finite("w", view), ErrorCode::format,
                       "tensor 'w': value at row 1, column 2 is -inf, expected a finite number");
  values[1] = kNaN;
  MIXTAPE_EXPECT_ERROR(check_finite("w", view), ErrorCode::format, "row 0, column 1 is nan");
  const Buffer buffer = load("w", view, DType::bf16, Device::cpu());
  MIXTAPE_EXPECT_ERROR(check_finite("w", buffer), ErrorCode::format, "row 0, column 1 is nan");
  const std::vector<double> wide = {1e300, 1.0};
  check_finite("w", view_of(FileDType::F64, {2}, wide));
}

}  // namespace
}  // namespace mixtape
