#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mixtape/backend/cpu/simd_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "mixtape/backend/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mixtape::HWY_NAMESPACE {

// One function each over an array, tails included.
[[maybe_unused]] void exp_array(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(exp(load(x + i, n - i)), y + i, n - i);
}
[[maybe_unused]] void sigmoid_array(const float* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(sigmoid(load(x + i, n - i)), y + i, n - i);
}
[[maybe_unused]] void narrow_array(const float* x, bf16* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(load(x + i, n - i), y + i, n - i);
}
[[maybe_unused]] void widen_array(const bf16* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(load(x + i, n - i), y + i, n - i);
}
[[maybe_unused]] void narrow_f16_array(const float* x, f16* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(load(x + i, n - i), y + i, n - i);
}
[[maybe_unused]] void widen_f16_array(const f16* x, float* y, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes()) store(load(x + i, n - i), y + i, n - i);
}
// Sum, and largest value where NaN wins.
[[maybe_unused]] void reduce_array(const float* x, float* y, std::size_t n) {
  Floats sum = zero(), max = set(-HUGE_VALF);
  for (std::size_t i = 0; i < n; i += lanes()) {
    sum = hn::Add(sum, load(x + i, n - i));
    max = max_nan(max, keep_first(load(x + i, n - i), n - i, set(-HUGE_VALF)));
  }
  y[0] = sum_lanes(sum);
  y[1] = max_lanes_nan(max);
}

}  // namespace mixtape::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

namespace mixtape {
HWY_EXPORT(exp_array);
HWY_EXPORT(sigmoid_array);
HWY_EXPORT(narrow_array);
HWY_EXPORT(widen_array);
HWY_EXPORT(narrow_f16_array);
HWY_EXPORT(widen_f16_array);
HWY_EXPORT(reduce_array);

namespace {

using Values = std::vector<float>;

// Runs the test once per instruction set that this processor has.
class Simd : public ::testing::Test {
 protected:
  template <class Work>
  void for_every_target(const Work& work) {
    for (const auto target : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(target);
      SCOPED_TRACE(hwy::TargetName(target));
      work();
    }
    hwy::SetSupportedTargetsForTest(0);
  }
};

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

// The distance between the f32 neighbours around a result, 2^-149 for subnormal ones.
double unit_in_the_last_place(double y) {
  int exponent = 0;
  std::frexp(y, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}
double relative_unit(double y) { return std::max(std::abs(y) * 0x1p-23, 0x1p-149); }

// Every `step`-th f32 there is.
Values all_floats(std::uint64_t step) {
  Values x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return x;
}

void expect_within(const Values& x, const Values& y, double (*function)(double), double units,
                   double (*unit)(double)) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      ASSERT_TRUE(std::isnan(y[i]));
      continue;
    }
    const double wanted = function(x[i]);
    if (static_cast<float>(wanted) == y[i]) continue;  // also both infinite
    ASSERT_LE(std::abs(y[i] - wanted), units * unit(wanted))
        << x[i] << ": " << y[i] << ", expected " << wanted;
  }
}

double exp_of(double x) { return std::exp(x); }
double sigmoid_of(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST_F(Simd, ExpOverAllExponents) {
  const Values x = all_floats(3001);
  for_every_target([&] {
    Values y(x.size());
    HWY_DYNAMIC_DISPATCH(exp_array)(x.data(), y.data(), x.size());
    expect_within(x, y, exp_of, 1.01, unit_in_the_last_place);
  });
}

TEST_F(Simd, ExpWhereResultsAreOrdinaryOrSubnormal) {
  Values x;
  for (float v = -104.5f; v < 89.0f; v += 0.00037f) x.push_back(v);
  for_every_target([&] {
    Values y(x.size());
    HWY_DYNAMIC_DISPATCH(exp_array)(x.data(), y.data(), x.size());
    expect_within(x, y, exp_of, 1.01, unit_in_the_last_place);
  });
}

TEST_F(Simd, ExpAtTheEdges) {
  const Values x = {-HUGE_VALF, HUGE_VALF, NAN, 0.0f, -0.0f, 88.72283f, 88.72284f, -103.97f, -104.0f, -1e38f};
  for_every_target([&] {
    Values y(x.size());
    HWY_DYNAMIC_DISPATCH(exp_array)(x.data(), y.data(), x.size());
    EXPECT_EQ(y[0], 0.0f);
    EXPECT_EQ(y[1], HUGE_VALF);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 1.0f);
    EXPECT_EQ(y[4], 1.0f);
    EXPECT_TRUE(std::isfinite(y[5]));
    EXPECT_EQ(y[6], HUGE_VALF);
    EXPECT_EQ(y[7], 0x1p-149f);
    EXPECT_EQ(y[8], 0.0f);
    EXPECT_EQ(y[9], 0.0f);
  });
}

TEST_F(Simd, Sigmoid) {
  Values x = all_floats(9001);
  for (float v = -110.0f; v < 110.0f; v += 0.0013f) x.push_back(v);
  for_every_target([&] {
    Values y(x.size());
    HWY_DYNAMIC_DISPATCH(sigmoid_array)(x.data(), y.data(), x.size());
    expect_within(x, y, sigmoid_of, 2.1, relative_unit);
  });
}

TEST_F(Simd, EveryBf16Widens) {
  std::vector<bf16> x(65536);
  for (std::size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<std::uint16_t>(i);
  for_every_target([&] {
    Values y(x.size());
    HWY_DYNAMIC_DISPATCH(widen_array)(x.data(), y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(bits_of(y[i]), bits_of(static_cast<float>(x[i])));
  });
}

TEST_F(Simd, NarrowingIsThatOfCore) {
  Values x = all_floats(1009);
  for (std::uint32_t high = 0; high < 65536; ++high) {  // around every tie
    for (const std::uint32_t low : {0x0u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
      x.push_back(std::bit_cast<float>(high << 16 | low));
  }
  for_every_target([&] {
    std::vector<bf16> y(x.size());
    HWY_DYNAMIC_DISPATCH(narrow_array)(x.data(), y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, bf16(x[i]).bits) << bits_of(x[i]);
  });
}

TEST_F(Simd, EveryF16Widens) {
  std::vector<f16> x(65536);
  for (std::size_t i = 0; i < x.size(); ++i) x[i].bits = static_cast<std::uint16_t>(i);
  for_every_target([&] {
    Values y(x.size());
    HWY_DYNAMIC_DISPATCH(widen_f16_array)(x.data(), y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto wanted = static_cast<float>(x[i]);
      const bool same = std::isnan(wanted) ? std::isnan(y[i]) : bits_of(y[i]) == bits_of(wanted);
      ASSERT_TRUE(same) << i;
    }
  });
}

TEST_F(Simd, NarrowingToF16IsThatOfCore) {
  Values x = all_floats(1009);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {  // around every value and every tie
    f16 value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto widened = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    for (const std::uint32_t offset : {0x0u, 0x1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu})
      x.push_back(std::bit_cast<float>(widened + offset));
  }
  for_every_target([&] {
    std::vector<f16> y(x.size());
    HWY_DYNAMIC_DISPATCH(narrow_f16_array)(x.data(), y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i].bits, f16(x[i]).bits) << bits_of(x[i]);
  });
}

// Arrays end where memory ends: a sanitizer sees any access beyond.
TEST_F(Simd, TailsStayInside) {
  for_every_target([&] {
    for (std::size_t n = 1; n <= 67; ++n) {
      Values x(n), y(n + 1, -7.0f), reduced(2);
      std::iota(x.begin(), x.end(), 1.0f);
      std::vector<bf16> half(n + 1, bf16(-7.0f));
      HWY_DYNAMIC_DISPATCH(narrow_array)(x.data(), half.data(), n);
      HWY_DYNAMIC_DISPATCH(widen_array)(half.data(), y.data(), n);
      for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(y[i], x[i]) << n;
      ASSERT_EQ(y[n], -7.0f);
      ASSERT_EQ(static_cast<float>(half[n]), -7.0f);
      HWY_DYNAMIC_DISPATCH(reduce_array)(x.data(), reduced.data(), n);
      ASSERT_EQ(reduced[0], static_cast<float>(n * (n + 1) / 2));
      ASSERT_EQ(reduced[1], static_cast<float>(n));
    }
  });
}

TEST_F(Simd, MaximumKeepsNanAtEveryPlace) {
  for_every_target([&] {
    for (std::size_t n = 1; n <= 40; ++n) {
      for (std::size_t at = 0; at < n; ++at) {
        Values x(n, 5.0f), y(2);
        x[at] = NAN;
        HWY_DYNAMIC_DISPATCH(reduce_array)(x.data(), y.data(), n);
        ASSERT_TRUE(std::isnan(y[1])) << n << " " << at;
      }
    }
    Values all(9, -HUGE_VALF), y(2);
    HWY_DYNAMIC_DISPATCH(reduce_array)(all.data(), y.data(), all.size());
    EXPECT_EQ(y[1], -HUGE_VALF);
  });
}

}  // namespace
}  // namespace mixtape
#endif
