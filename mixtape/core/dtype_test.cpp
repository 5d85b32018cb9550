#include "mixtape/core/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>

#include "mixtape/core/error.h"

namespace mixtape {
namespace {

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// What a 16-bit pattern means, from its fields, in f64.
double decoded(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0.0 ? sign * HUGE_VAL : NAN;
  const double one = std::ldexp(1.0, mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(one + mantissa, exponent - bias - mantissa_bits);
}

template <class T>
T pattern(std::uint32_t bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// Every pattern decodes to its value and encodes back to itself; a NaN stays a NaN.
template <class T>
void check_every_pattern(int exponent_bits) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const T value = pattern<T>(i);
    const double wanted = decoded(value.bits, exponent_bits);
    const auto found = static_cast<float>(value);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(found)) << i;
      ASSERT_TRUE(std::isnan(static_cast<float>(T(found)))) << i;
    } else {
      ASSERT_EQ(static_cast<double>(found), wanted) << i;
      ASSERT_EQ(std::signbit(found), std::signbit(wanted)) << i;
      ASSERT_EQ(T(found).bits, i);
    }
  }
}

// Between neighbours a and b: the midpoint goes to the even pattern, anything beside it to the nearer one.
template <class T>
void check_rounding(std::uint32_t infinity) {
  for (std::uint32_t i = 0; i + 1 < infinity; ++i) {
    const double a = static_cast<float>(pattern<T>(i)), b = static_cast<float>(pattern<T>(i + 1));
    const auto middle = static_cast<float>((a + b) / 2.0);  // exact: f32 has bits to spare
    ASSERT_EQ(static_cast<double>(middle), (a + b) / 2.0);
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint32_t s = sign < 0.0f ? 0x8000u : 0u;
      ASSERT_EQ(T(sign * middle).bits, (i + (i & 1u)) | s) << i;
      ASSERT_EQ(T(sign * std::nextafter(middle, 0.0f)).bits, i | s) << i;
      ASSERT_EQ(T(sign * std::nextafter(middle, HUGE_VALF)).bits, (i + 1) | s) << i;
    }
  }
}

TEST(Bf16, EveryPattern) { check_every_pattern<bf16>(8); }
TEST(F16, EveryPattern) { check_every_pattern<f16>(5); }
TEST(Bf16, RoundsToNearestEven) { check_rounding<bf16>(0x7f80u); }
TEST(F16, RoundsToNearestEven) { check_rounding<f16>(0x7c00u); }

TEST(Bf16, OverflowAndNan) {
  EXPECT_EQ(bf16(from_bits(0x7f7f7fffu)).bits, 0x7f7fu);  // the last that rounds down
  EXPECT_EQ(bf16(from_bits(0x7f7f8000u)).bits, 0x7f80u);
  EXPECT_EQ(bf16(-HUGE_VALF).bits, 0xff80u);
  for (const std::uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7f80ffffu}) {
    const std::uint16_t bits = bf16(from_bits(nan)).bits;
    EXPECT_EQ(bits & 0x7fc0u, 0x7fc0u) << nan;  // quiet
    EXPECT_EQ(bits >> 15, nan >> 31) << nan;
  }
}

TEST(F16, OverflowUnderflowAndNan) {
  EXPECT_EQ(f16(65519.996f).bits, 0x7bffu);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(f16(-1e30f).bits, 0xfc00u);
  EXPECT_EQ(f16(0x1p-25f).bits, 0u);  // half the smallest: to even
  EXPECT_EQ(f16(std::nextafter(0x1p-25f, 1.0f)).bits, 1u);
  EXPECT_EQ(f16(-1e-30f).bits, 0x8000u);
  for (const std::uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fffffffu}) {
    EXPECT_EQ(f16(from_bits(nan)).bits & 0x7e00u, 0x7e00u) << nan;
  }
}

TEST(DType, NamesSizesAndKinds) {
  EXPECT_STREQ(name(DType::bf16), "bf16");
  EXPECT_STREQ(name(DType::u8), "u8");
  EXPECT_EQ(size_of(DType::f32) + size_of(DType::f16) + size_of(DType::u8), 7u);
  EXPECT_TRUE(is_value(DType::f16));
  EXPECT_FALSE(is_value(DType::i32));
  EXPECT_EQ(dtype_of<std::int32_t>(), DType::i32);
}

TEST(DType, EpsilonIsTheStepAfterOne) {
  EXPECT_EQ(1.0 + epsilon(DType::bf16), static_cast<double>(static_cast<float>(pattern<bf16>(0x3f81u))));
  EXPECT_EQ(1.0 + epsilon(DType::f16), static_cast<double>(static_cast<float>(pattern<f16>(0x3c01u))));
  EXPECT_EQ(1.0f + static_cast<float>(epsilon(DType::f32)), std::nextafter(1.0f, 2.0f));
  EXPECT_THROW(epsilon(DType::u32), Error);
}

TEST(Error, CarriesCodeAndMessage) {
  try {
    fail(ErrorCode::io, "file ", 7, " is ", DType::u8);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_STREQ(error.what(), "file 7 is u8");
  }
  EXPECT_NO_THROW(require(true, "fine"));
  EXPECT_THROW(require(false, "not"), Error);
  EXPECT_STREQ(name(ErrorCode::index_out_of_range), "index_out_of_range");
}

}  // namespace
}  // namespace mixtape
