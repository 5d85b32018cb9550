#include "mixtape/ops/cholesky/cholesky.h"

#include <cmath>

#include "mixtape/ops/cholesky/cholesky_check.h"
#include "mixtape/ops/cholesky/cholesky_oracle.h"
#include "mixtape/testing/check_op.h"

namespace mixtape {
namespace {

using testing::Doubles;
using testing::HostTensor;

struct Result {
  Buffer factor, min_pivot;
};

Result factor_of(const Device& device, const HostTensor& h) {
  const testing::Poison poison(device);
  CommandEncoder encoder(device);
  const std::int64_t rank = h.shape.rank();
  const Shape leading = rank == 2 ? Shape{1} : Shape{h.shape[0]};
  Result out{device.alloc_uninitialized(DType::f32, h.shape),
             device.alloc_uninitialized(DType::f32, leading)};
  cholesky_forward(encoder, upload(device, h), out.factor, out.min_pivot);
  encoder.commit_and_wait();
  return out;
}

// L is lower triangular, and L^T L is h within the contract.
void expect_factor(const HostTensor& h, const Buffer& found) {
  const std::int64_t size = h.shape.cols();
  const Doubles values = testing::download(found).values;
  for (std::size_t at = 0; at < values.size(); at += static_cast<std::size_t>(size * size)) {
    const double *l = values.data() + at, *wanted = h.values.data() + at;
    double worst = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t j = i + 1; j < size; ++j) ASSERT_EQ(l[i * size + j], 0.0) << i << "," << j;
      for (std::int64_t j = 0; j <= i; ++j) {
        double product = 0.0;
        for (std::int64_t r = i; r < size; ++r) product += l[r * size + i] * l[r * size + j];
        const double unit = 0x1p-24 * std::sqrt(wanted[i * size + i] * wanted[j * size + j]);
        worst = std::max(worst, std::abs(product - wanted[i * size + j]) / unit);
      }
    }
    EXPECT_LE(worst, static_cast<double>(size + 4));
  }
}

void expect_no_factor(const Device& device, const HostTensor& h, double min_pivot) {
  const Result found = factor_of(device, h);
  const double pivot = testing::download(found.min_pivot).values[0];
  if (std::isnan(min_pivot)) {
    EXPECT_TRUE(std::isnan(pivot)) << pivot;
  } else {
    EXPECT_EQ(pivot, min_pivot);
  }
}

HostTensor matrix(std::int64_t size, Doubles values) {
  return testing::make_tensor(DType::f32, {size, size}, std::move(values));
}

TEST(Cholesky, MatchesOracle) {
  for (const Device& device : testing::test_devices()) check_ops(device, cholesky_checks(device, DType::f32));
}

TEST(Cholesky, ProductAndPivot) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t size : {1, 7, 64, 129, 200, 450}) {
      if (device.name() == "sim" && size > 200) continue;
      const HostTensor h = random_spd(2, size, 3, 0.1);
      const Result found = factor_of(device, h);
      expect_factor(h, found.factor);
      testing::expect_close("min_pivot", found.min_pivot, oracle::cholesky(h.values, size).min_pivots,
                            {2.0, 3.0 * static_cast<double>(size + 4) * 0x1p-24});
    }
  }
}

// One channel a thousand times as large as the others, as activations have: the others' rows lose nothing.
TEST(Cholesky, OutlierChannel) {
  for (const Device& device : testing::test_devices()) {
    for (const std::int64_t outlier : {0, 70, 99}) {
      HostTensor h = random_spd(1, 100, 4, 1e-3);
      for (std::int64_t i = 0; i < 100; ++i) {
        h.values[outlier * 100 + i] *= 1e3;
        h.values[i * 100 + outlier] *= 1e3;
      }
      h = testing::make_tensor(DType::f32, h.shape, h.values);
      const Result found = factor_of(device, h);
      expect_factor(h, found.factor);
      EXPECT_GT(testing::download(found.min_pivot).values[0], 0.0);
    }
  }
}

// An integer factor comes back exactly, by hand.
TEST(Cholesky, ByHand) {
  for (const Device& device : testing::test_devices()) {
    // L = [[2,0,0],[1,3,0],[-4,5,1]]
    const Result found = factor_of(device, matrix(3, {21, -17, -4, -17, 34, 5, -4, 5, 1}));
    EXPECT_EQ(testing::download(found.factor).values, (Doubles{2, 0, 0, 1, 3, 0, -4, 5, 1}));
    EXPECT_EQ(testing::download(found.min_pivot).values, Doubles{1});
  }
}

TEST(Cholesky, OnlyTheLowerTriangleIsRead) {
  for (const Device& device : testing::test_devices()) {
    const Result found = factor_of(device, matrix(2, {5, NAN, 2, 1}));
    EXPECT_EQ(testing::download(found.factor).values, (Doubles{1, 0, 2, 1}));
  }
}

TEST(Cholesky, InPlace) {
  for (const Device& device : testing::test_devices()) {
    const HostTensor h = random_spd(2, 70, 5);
    const Buffer b = upload(device, h), min_pivot = device.alloc(DType::f32, {2});
    CommandEncoder encoder(device);
    cholesky_forward(encoder, b, b, min_pivot);
    encoder.commit_and_wait();
    EXPECT_EQ(testing::download(b).values, testing::download(factor_of(device, h).factor).values);
  }
}

TEST(Cholesky, WhereThereIsNoFactor) {
  for (const Device& device : testing::test_devices()) {
    expect_no_factor(device, matrix(1, {0}), 0.0);
    expect_no_factor(device, matrix(1, {-3}), -3.0);
    expect_no_factor(device, matrix(1, {NAN}), NAN);
    expect_no_factor(device, matrix(1, {HUGE_VAL}), NAN);
    expect_no_factor(device, matrix(2, {1, 0, 2, 1}), -3.0);
    expect_no_factor(device, matrix(2, {4, 0, 2, 1}), 0.0);  // singular
    expect_no_factor(device, matrix(2, {4, 0, NAN, 1}), NAN);
    expect_no_factor(device, matrix(2, {4, 0, HUGE_VAL, 1}), NAN);
    expect_no_factor(device, testing::make_tensor(DType::f32, {130, 130}, Doubles(130 * 130)), 0.0);
    // The first bad pivot from the last row on counts, though one above it is worse.
    expect_no_factor(device, matrix(3, {-9, 0, 0, 0, -2, 0, 0, 0, 1}), -2.0);
    HostTensor h = random_spd(1, 130, 6);
    h.values[10 * 130 + 10] = -1.0;
    EXPECT_LT(testing::download(factor_of(device, h).min_pivot).values[0], 0.0);
    h.values[120 * 130 + 5] = NAN;
    EXPECT_TRUE(testing::download(factor_of(device, h).min_pivot).values[0] < 0.0);
    h.values[120 * 130 + 50] = NAN;
    EXPECT_TRUE(std::isnan(testing::download(factor_of(device, h).min_pivot).values[0]));
  }
}

// A matrix without a factor leaves the others of the batch alone.
TEST(Cholesky, BatchOfGoodAndBad) {
  for (const Device& device : testing::test_devices()) {
    HostTensor h = random_spd(3, 66, 7);
    const Doubles alone = testing::download(factor_of(device, h).factor).values;
    h.values[66 * 66] = NAN;
    const Result found = factor_of(device, h);
    const Doubles pivots = testing::download(found.min_pivot).values;
    EXPECT_TRUE(pivots[0] > 0.0 && std::isnan(pivots[1]) && pivots[2] > 0.0);
    const Doubles values = testing::download(found.factor).values;
    for (const std::size_t m : {0, 2}) {
      const auto first = static_cast<std::ptrdiff_t>(m * 66 * 66);
      EXPECT_TRUE(
          std::equal(values.begin() + first, values.begin() + first + 66 * 66, alone.begin() + first));
    }
  }
}

TEST(Cholesky, EmptyBatch) {
  for (const Device& device : testing::test_devices()) {
    CommandEncoder encoder(device);
    const Buffer h = device.alloc(DType::f32, {0, 4, 4});
    cholesky_forward(encoder, h, device.alloc(DType::f32, {0, 4, 4}), device.alloc(DType::f32, {0}));
    encoder.commit_and_wait();
  }
}

TEST(Cholesky, RefusesBadArguments) {
  const Device device = Device::cpu();
  CommandEncoder encoder(device);
  const auto make = [&](const Shape& shape) { return device.alloc(DType::f32, shape); };
  const auto code = ErrorCode::invalid_argument;
  const Buffer h = make({4, 4}), pivot = make({1});
  MIXTAPE_EXPECT_ERROR(cholesky_forward(encoder, make({4}), h, pivot), code, "cholesky: h is f32[4]");
  MIXTAPE_EXPECT_ERROR(cholesky_forward(encoder, make({4, 3}), h, pivot), code, "expected square");
  MIXTAPE_EXPECT_ERROR(cholesky_forward(encoder, make({0, 0}), h, pivot), code, "expected square");
  MIXTAPE_EXPECT_ERROR(cholesky_forward(encoder, device.alloc(DType::bf16, {4, 4}), h, pivot), code,
                       "h is bf16[4,4], expected f32");
  MIXTAPE_EXPECT_ERROR(cholesky_forward(encoder, h, make({4, 3}), pivot), code, "factor is f32[4,3]");
  MIXTAPE_EXPECT_ERROR(cholesky_forward(encoder, h, h, make({4})), code,
                       "min_pivot is f32[4], expected f32[1]");
}

}  // namespace
}  // namespace mixtape
